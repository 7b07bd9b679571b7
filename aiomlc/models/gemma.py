"""Gemma: Llama with GELU, a scaled embedding, and norms whose weights count from one."""

from __future__ import annotations

__all__ = ("parse",)

import math
from dataclasses import replace

from aiomlc.models.config import DecoderConfig, Traits, parse_decoder
from aiomlc.models.fields import Fields


def parse(fields: Fields) -> DecoderConfig:
    """Read a config of model type `gemma`."""
    if fields.boolean("use_bidirectional_attention", False):
        raise fields.error("use_bidirectional_attention", "is true, which is not supported")

    bias = fields.boolean("attention_bias", False)
    traits = Traits(
        qkv_bias=bias, output_bias=bias, activation="gelu_tanh", tied=True, head_dim=256
    )
    config = parse_decoder(fields, "gemma", traits)
    return replace(config, embedding_scale=math.sqrt(config.hidden_size), norm_added=1.0)
