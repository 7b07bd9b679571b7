"""gpt-oss: experts with biases and a clamped gate, sinks, and a window in every other layer."""

from __future__ import annotations

__all__ = ("parse",)

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from aiomlc.models.config.decoder import DecoderConfig
from aiomlc.models.config.decoder_fields import ConfigRules, DecoderTraits, parse_decoder
from aiomlc.models.config.fields import Fields
from aiomlc.models.config.rope import RopeConfig
from aiomlc.models.families.moe_fields import with_experts

_WINDOW: Final = 128
_FACTOR: Final = 32.0
# The default of transformers for a config without any setting of RoPE's scaling.
_ROPE: Final = RopeConfig(
    rope_type="yarn",
    factor=_FACTOR,
    original_context=4096,
    attention_factor=0.1 * math.log(_FACTOR) + 1.0,
    truncate=False,
)
# The constants of the gate, which kernels have.
_CLAMPED_SWIGLU: Final[Mapping[str, float]] = {"swiglu_limit": 7.0, "swiglu_alpha": 1.702}


def parse(fields: Fields) -> DecoderConfig:
    """Read a config of model type `gpt_oss`."""
    for name, value in _CLAMPED_SWIGLU.items():
        if (number := fields.number(name, value)) != value:
            raise fields.error(name, f"must be {value}, got {number}")

    fields = fields.with_defaults(sliding_window=_WINDOW)
    bias = fields.boolean("attention_bias", True)
    traits = DecoderTraits(qkv_bias=bias, output_bias=bias, hf_experts_layout="inputs")
    rules = ConfigRules(
        head_dim=64, hf_window="interleaved", full_attention_interval=2, rope_theta=150_000.0
    )
    config = parse_decoder(fields, "gpt_oss", traits, rules)
    if "rope_scaling" not in fields and "rope_parameters" not in fields:
        config = config.with_attention(rope=replace(_ROPE, theta=config.rope_theta))
    return with_experts(
        config.with_attention(sink_scores=True),
        fields,
        size_field="intermediate_size",
        normalize=True,
        activation="clamped_swiglu",
        bias=True,
    )
