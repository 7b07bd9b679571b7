"""Seed-OSS: Llama whose queries, keys and values have a bias."""

from __future__ import annotations

__all__ = ("parse",)

from aiomlc.models.config.decoder import DecoderConfig, Traits, parse_decoder
from aiomlc.models.config.fields import Fields


def parse(fields: Fields) -> DecoderConfig:
    """Read a config of model type `seed_oss`."""
    traits = Traits(
        qkv_bias=fields.boolean("attention_bias", True),
        output_bias=fields.boolean("attention_out_bias", False),
        head_dim=128,
    )
    return parse_decoder(fields, "seed_oss", traits)
