"""EXAONE 4: norms behind attention and the gated layer, and of every head.

Where some layers have a window, only those turn.
"""

from __future__ import annotations

__all__ = ("parse",)

from dataclasses import replace

from aiomlc.models.config.decoder import DecoderConfig, Traits, parse_decoder
from aiomlc.models.config.fields import Fields
from aiomlc.models.config.sliding_window import sliding_layers

_FULL_EVERY = 4


def parse(fields: Fields) -> DecoderConfig:
    """Read a config of model type `exaone4`."""
    if "sliding_window" not in fields:
        return parse_decoder(fields, "exaone4", Traits(qk_norm=True, norms="behind"))

    traits = Traits(qk_norm=True, norms="behind", window="interleaved", full_every=_FULL_EVERY)
    config = parse_decoder(fields, "exaone4", traits)
    slides = sliding_layers(fields, config.num_hidden_layers, _FULL_EVERY)
    return replace(config, layer_ropes=tuple(config.rope if one else None for one in slides))
