"""OLMo 3: OLMo 2 with a sliding window and unscaled RoPE in most layers."""

from __future__ import annotations

__all__ = ("parse",)

from aiomlc.models.config.decoder import DecoderConfig
from aiomlc.models.config.decoder_fields import ConfigRules, parse_decoder
from aiomlc.models.config.fields import Fields
from aiomlc.models.config.rope import RopeConfig
from aiomlc.models.config.rope_fields import parse_rope
from aiomlc.models.config.sliding_window import default_window, sliding_layers
from aiomlc.models.families.olmo2 import olmo_traits

_FULL_ATTENTION_INTERVAL = 4
_THETA = 500_000.0


def parse(fields: Fields) -> DecoderConfig:
    """Read a config of model type `olmo3`."""
    fields = default_window(fields)
    is_per_type = "full_attention" in fields.nested("rope_parameters")
    full = fields.narrowed("rope_parameters", "full_attention") if is_per_type else fields
    rules = ConfigRules(
        hf_window="interleaved",
        full_attention_interval=_FULL_ATTENTION_INTERVAL,
        rope_theta=_THETA,
    )
    config = parse_decoder(full, "olmo3", olmo_traits(full), rules)
    local = RopeConfig(theta=config.rope_theta)
    if is_per_type:
        sliding = fields.without("rope_scaling").narrowed("rope_parameters", "sliding_attention")
        head_dim, context = config.cache_shape.head_dim, config.context_window_size
        local = parse_rope(sliding, head_dim=head_dim, context=context, theta=_THETA)
    slides = sliding_layers(fields, config.num_hidden_layers, _FULL_ATTENTION_INTERVAL)
    return config.with_rope(local, slides)
