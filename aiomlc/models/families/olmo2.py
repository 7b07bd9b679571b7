"""OLMo 2: norms stand behind attention and the gated layer, and one spans all heads."""

from __future__ import annotations

__all__ = ("olmo_traits", "parse")

from typing import Any

from aiomlc.models.config.decoder import DecoderConfig, Traits, parse_decoder
from aiomlc.models.config.fields import Fields


def parse(fields: Fields) -> DecoderConfig:
    """Read a config of model type `olmo2`."""
    return parse_decoder(fields, "olmo2", olmo_traits(fields))


def olmo_traits(fields: Fields, **more: Any) -> Traits:  # noqa: ANN401 - what `Traits` takes.
    """What OLMo 2 and its successors have in common, and `more`."""
    bias = fields.boolean("attention_bias", False)
    return Traits(
        qkv_bias=bias,
        output_bias=bias,
        qk_norm=True,
        qk_norm_full_width=True,
        norms="behind",
        **more,
    )
