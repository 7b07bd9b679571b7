"""Helium: Llama whose pairs of dimensions that turn together are neighbours."""

from __future__ import annotations

__all__ = ("parse",)

from aiomlc.models.config.decoder import DecoderConfig, Traits, parse_decoder
from aiomlc.models.config.fields import Fields


def parse(fields: Fields) -> DecoderConfig:
    """Read a config of model type `helium`."""
    bias = fields.boolean("attention_bias", False)
    traits = Traits(hf_qkv_layout="pairs", qkv_bias=bias, head_dim=128, theta=100000.0)
    return parse_decoder(fields, "helium", traits)
