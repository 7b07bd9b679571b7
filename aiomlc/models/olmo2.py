"""OLMo 2: norms stand behind attention and the gated layer, and one spans all heads."""

from __future__ import annotations

__all__ = ("parse",)

from aiomlc.models.config import DecoderConfig, Traits, parse_decoder
from aiomlc.models.fields import Fields


def parse(fields: Fields) -> DecoderConfig:
    """Read a config of model type `olmo2`."""
    bias = fields.boolean("attention_bias", False)
    traits = Traits(
        qkv_bias=bias, output_bias=bias, qk_norm=True, qk_norm_of_all_heads=True, norms="behind"
    )
    return parse_decoder(fields, "olmo2", traits)
