"""Nemotron and Minitron: layer norms whose weights count from one, and squares of plain layers."""

from __future__ import annotations

__all__ = ("parse",)

from dataclasses import replace

from aiomlc.models.config.decoder import DecoderConfig, Traits, parse_decoder
from aiomlc.models.config.fields import Fields


def parse(fields: Fields) -> DecoderConfig:
    """Read a config of model type `nemotron`."""
    if "context_window_size" in fields:
        problem = "is 'nemotron' in MLC's form, whose norms differ; give Hugging Face's directory"
        raise fields.error("model_type", problem)

    bias = fields.boolean("attention_bias", False)
    traits = Traits(
        qkv_bias=bias,
        output_bias=bias,
        norm_kind="layer",
        norm_eps="norm_eps",
        gated=False,
        activation="relu_square",
        partial_rotary_factor=0.5,
    )
    return replace(parse_decoder(fields, "nemotron", traits), norm_weight_offset=1.0)
