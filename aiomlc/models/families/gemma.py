"""Gemma: Llama with GELU, a scaled embedding, and norms whose weights count from one."""

from __future__ import annotations

__all__ = ("as_gemma", "gemma_traits", "parse")

import math
from dataclasses import replace
from typing import Any

from aiomlc.models.config.decoder import DecoderConfig, Traits, parse_decoder
from aiomlc.models.config.fields import Fields


def parse(fields: Fields) -> DecoderConfig:
    """Read a config of model type `gemma`."""
    return as_gemma(parse_decoder(fields, "gemma", gemma_traits(fields)))


def gemma_traits(fields: Fields, **more: Any) -> Traits:  # noqa: ANN401 - what `Traits` takes.
    """What all Gemmas have in common, and `more`.

    Raises:
        ModelLoadError: the config asks for what is not supported.
    """
    if fields.boolean("use_bidirectional_attention", False):
        raise fields.error("use_bidirectional_attention", "is true, which is not supported")

    bias = fields.boolean("attention_bias", False)
    return Traits(
        qkv_bias=bias,
        output_bias=bias,
        activation="gelu_tanh",
        tied=True,
        head_dim=256,
        **more,
    )


def as_gemma(config: DecoderConfig, **more: Any) -> DecoderConfig:  # noqa: ANN401 - as above.
    """The same with a Gemma's scale of the embedding and norms, and `more`."""
    scale = math.sqrt(config.hidden_size)
    return replace(config, embedding_scale=scale, norm_weight_offset=1.0, **more)
