"""Llama 2, Llama 3 and models of the same architecture."""

from __future__ import annotations

__all__ = ("parse",)

from aiomlc.models.config.decoder import DecoderConfig
from aiomlc.models.config.decoder_fields import DecoderTraits, parse_decoder
from aiomlc.models.config.fields import Fields


def parse(fields: Fields) -> DecoderConfig:
    """Read a config of model type `llama`."""
    bias = fields.boolean("attention_bias", False)
    return parse_decoder(fields, "llama", DecoderTraits(qkv_bias=bias, output_bias=bias))
