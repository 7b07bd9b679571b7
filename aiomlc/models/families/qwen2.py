"""Qwen 2 and 2.5: Llama with biases on queries, keys and values."""

from __future__ import annotations

__all__ = ("parse",)

from aiomlc.models.config.decoder import DecoderConfig
from aiomlc.models.config.decoder_fields import ConfigRules, DecoderTraits, parse_decoder
from aiomlc.models.config.fields import Fields
from aiomlc.models.config.sliding_window import default_window


def parse(fields: Fields) -> DecoderConfig:
    """Read a config of model type `qwen2`."""
    traits = DecoderTraits(qkv_name="c_attn", qkv_bias=True)
    return parse_decoder(default_window(fields), "qwen2", traits, ConfigRules(hf_window="switched"))
