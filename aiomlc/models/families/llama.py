"""Llama 2, 3 and everything shaped like them."""

from __future__ import annotations

__all__ = ("parse",)

from aiomlc.models.config.decoder import DecoderConfig, Traits, parse_decoder
from aiomlc.models.config.fields import Fields


def parse(fields: Fields) -> DecoderConfig:
    """Read a config of model type `llama`."""
    bias = fields.boolean("attention_bias", False)
    return parse_decoder(fields, "llama", Traits(qkv_bias=bias, output_bias=bias))
