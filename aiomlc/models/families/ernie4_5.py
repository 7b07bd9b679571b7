"""ERNIE 4.5: Llama whose pairs of dimensions that turn together are neighbours."""

from __future__ import annotations

__all__ = ("parse",)

from aiomlc.models.config.decoder import DecoderConfig, Traits, parse_decoder
from aiomlc.models.config.fields import Fields


def parse(fields: Fields) -> DecoderConfig:
    """Read a config of model type `ernie4_5`."""
    bias = fields.boolean("use_bias", False)
    traits = Traits(
        hf_qkv_layout="pairs",
        qkv_bias=bias,
        output_bias=bias,
        mlp_bias=bias,
        tied=True,
        head_dim=128,
        theta=500000.0,
    )
    return parse_decoder(fields, "ernie4_5", traits)
