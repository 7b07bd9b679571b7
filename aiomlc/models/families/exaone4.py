"""EXAONE 4: post-norm and QK-norm.

If some layers have a sliding window, only those have RoPE.
"""

from __future__ import annotations

__all__ = ("parse",)

from aiomlc.models.config.decoder import DecoderConfig
from aiomlc.models.config.decoder_fields import ConfigRules, DecoderTraits, parse_decoder
from aiomlc.models.config.fields import Fields
from aiomlc.models.config.sliding_window import default_window, sliding_layers

_FULL_ATTENTION_INTERVAL = 4


def parse(fields: Fields) -> DecoderConfig:
    """Read a config of model type `exaone4`."""
    fields = default_window(fields)
    traits = DecoderTraits(qk_norm="per_head", norm_placement="post")
    if "sliding_window" not in fields:
        return parse_decoder(fields, "exaone4", traits)

    interval = _FULL_ATTENTION_INTERVAL
    rules = ConfigRules(hf_window="interleaved", full_attention_interval=interval)
    config = parse_decoder(fields, "exaone4", traits, rules)
    slides = sliding_layers(fields, config.num_hidden_layers, interval)
    return config.with_rope(None, [not is_sliding for is_sliding in slides])
