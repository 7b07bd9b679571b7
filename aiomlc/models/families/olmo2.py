"""OLMo 2: post-norm, and QK-norm over all heads at once."""

from __future__ import annotations

__all__ = ("olmo_traits", "parse")

from aiomlc.models.config.decoder import DecoderConfig
from aiomlc.models.config.decoder_fields import DecoderTraits, parse_decoder
from aiomlc.models.config.fields import Fields


def parse(fields: Fields) -> DecoderConfig:
    """Read a config of model type `olmo2`."""
    return parse_decoder(fields, "olmo2", olmo_traits(fields))


def olmo_traits(fields: Fields) -> DecoderTraits:
    """Return the traits that OLMo 2 and OLMo 3 share."""
    bias = fields.boolean("attention_bias", False)
    return DecoderTraits(
        qkv_bias=bias,
        output_bias=bias,
        qk_norm="full_width",
        norm_placement="post",
    )
