"""Seed-OSS: Llama with biases on queries, keys and values."""

from __future__ import annotations

__all__ = ("parse",)

from aiomlc.models.config.decoder import DecoderConfig
from aiomlc.models.config.decoder_fields import ConfigRules, DecoderTraits, parse_decoder
from aiomlc.models.config.fields import Fields


def parse(fields: Fields) -> DecoderConfig:
    """Read a config of model type `seed_oss`."""
    traits = DecoderTraits(
        qkv_bias=fields.boolean("attention_bias", True),
        output_bias=fields.boolean("attention_out_bias", False),
    )
    return parse_decoder(fields, "seed_oss", traits, ConfigRules(head_dim=128))
