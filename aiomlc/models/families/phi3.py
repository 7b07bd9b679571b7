"""Phi 3 and 4: Llama with fused tensors, heads of which only a part may turn, and `longrope`."""

from __future__ import annotations

__all__ = ("parse",)

from aiomlc.models.config.decoder import DecoderConfig, Traits, parse_decoder
from aiomlc.models.config.fields import Fields

# Configs name these, the architecture has them not.
_BIASES = ("attention_bias", "lm_head_bias")


def parse(fields: Fields) -> DecoderConfig:
    """Read a config of model type `phi3`."""
    for name in _BIASES:
        if fields.boolean(name, False):
            raise fields.error(name, "is true, which is not supported")

    traits = Traits(
        hf_fused=("qkv_proj", "gate_up_proj"), partial_rotary_factor=1.0, window="always"
    )
    return parse_decoder(fields, "phi3", traits)
