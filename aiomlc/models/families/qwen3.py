"""Qwen 3: Qwen 2 with QK-norm on every head."""

from __future__ import annotations

__all__ = ("parse",)

from aiomlc.models.config.decoder import DecoderConfig
from aiomlc.models.config.decoder_fields import ConfigRules, DecoderTraits, parse_decoder
from aiomlc.models.config.fields import Fields
from aiomlc.models.config.sliding_window import default_window


def parse(fields: Fields) -> DecoderConfig:
    """Read a config of model type `qwen3`."""
    bias = fields.boolean("attention_bias", False)
    traits = DecoderTraits(qkv_name="c_attn", qkv_bias=bias, output_bias=bias, qk_norm="per_head")
    rules = ConfigRules(head_dim=128, hf_window="switched")
    return parse_decoder(default_window(fields), "qwen3", traits, rules)
