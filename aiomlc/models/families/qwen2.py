"""Qwen 2 and 2.5: queries, keys and values have a bias."""

from __future__ import annotations

__all__ = ("parse",)

from aiomlc.models.config.decoder import DecoderConfig, Traits, parse_decoder
from aiomlc.models.config.fields import Fields


def parse(fields: Fields) -> DecoderConfig:
    """Read a config of model type `qwen2`."""
    traits = Traits(qkv_name="c_attn", qkv_bias=True, window="switched")
    return parse_decoder(fields, "qwen2", traits)
