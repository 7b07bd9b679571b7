"""Phi 3 and 4: Llama with fused tensors, optional partial rotation, and `longrope`."""

from __future__ import annotations

__all__ = ("parse",)

from aiomlc.models.config.decoder import DecoderConfig
from aiomlc.models.config.decoder_fields import ConfigRules, DecoderTraits, parse_decoder
from aiomlc.models.config.fields import Fields


def parse(fields: Fields) -> DecoderConfig:
    """Read a config of model type `phi3`."""
    # The configs contain these fields, but the architecture has no such biases.
    fields.require_false("attention_bias")
    fields.require_false("lm_head_bias")
    traits = DecoderTraits(hf_fused=("qkv_proj", "gate_up_proj"))
    rules = ConfigRules(partial_rotary_factor=1.0, hf_window="always")
    return parse_decoder(fields, "phi3", traits, rules)
