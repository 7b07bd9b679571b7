"""OLMo 3: OLMo 2 with windows in most layers, which turn without the scaling of the others."""

from __future__ import annotations

__all__ = ("parse",)

from dataclasses import replace

from aiomlc.models.config.decoder import DecoderConfig, parse_decoder
from aiomlc.models.config.fields import Fields
from aiomlc.models.config.rope import RopeConfig
from aiomlc.models.config.rope_fields import parse_rope
from aiomlc.models.config.sliding_window import sliding_layers
from aiomlc.models.families.olmo2 import olmo_traits

_FULL_EVERY = 4
_THETA = 500_000.0
_WINDOW = 4096
_KINDS = "rope_parameters"


def parse(fields: Fields) -> DecoderConfig:
    """Read a config of model type `olmo3`."""
    fields = fields.filled(sliding_window=_WINDOW)
    has_kinds = "full_attention" in fields.nested(_KINDS)
    full = fields.chosen(_KINDS, "full_attention") if has_kinds else fields
    traits = olmo_traits(full, window="interleaved", full_every=_FULL_EVERY, theta=_THETA)
    config = parse_decoder(full, "olmo3", traits)
    local = RopeConfig(theta=config.rope.theta)
    if has_kinds:
        sliding = fields.chosen(_KINDS, "sliding_attention")
        context = config.context_window_size
        local = parse_rope(sliding, head_dim=config.head_dim, context=context, theta=_THETA)
    slides = sliding_layers(fields, config.num_hidden_layers, _FULL_EVERY)
    return replace(config, layer_ropes=tuple(local if one else config.rope for one in slides))
