"""Qwen 3: every head of the queries and keys is normalised."""

from __future__ import annotations

__all__ = ("parse",)

from aiomlc.models.config.decoder import DecoderConfig, Traits, parse_decoder
from aiomlc.models.config.fields import Fields


def parse(fields: Fields) -> DecoderConfig:
    """Read a config of model type `qwen3`."""
    bias = fields.boolean("attention_bias", False)
    traits = Traits(
        qkv_name="c_attn",
        qkv_bias=bias,
        output_bias=bias,
        qk_norm=True,
        head_dim=128,
        window="switched",
    )
    return parse_decoder(fields, "qwen3", traits)
