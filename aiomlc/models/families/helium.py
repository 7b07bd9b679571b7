"""Helium: Llama with interleaved rotary pairs."""

from __future__ import annotations

__all__ = ("parse",)

from aiomlc.models.config.decoder import DecoderConfig
from aiomlc.models.config.decoder_fields import ConfigRules, DecoderTraits, parse_decoder
from aiomlc.models.config.fields import Fields


def parse(fields: Fields) -> DecoderConfig:
    """Read a config of model type `helium`."""
    bias = fields.boolean("attention_bias", False)
    traits = DecoderTraits(hf_qkv_layout="interleaved_rope", qkv_bias=bias)
    return parse_decoder(fields, "helium", traits, ConfigRules(head_dim=128, rope_theta=100000.0))
