"""EXAONE 4: norms behind attention and the gated layer, and of every head."""

from __future__ import annotations

__all__ = ("parse",)

from aiomlc.models.config import DecoderConfig, Traits, parse_decoder
from aiomlc.models.fields import Fields


def parse(fields: Fields) -> DecoderConfig:
    """Read a config of model type `exaone4`."""
    if "sliding_window" in fields:
        raise fields.error("sliding_window", "is set: layers that do not turn are not supported")

    return parse_decoder(fields, "exaone4", Traits(qk_norm=True, norms="behind"))
