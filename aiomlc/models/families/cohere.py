"""Command R and Aya: a gated layer beside attention, behind the same layer norm without bias."""

from __future__ import annotations

__all__ = ("parse",)

from dataclasses import replace

from aiomlc.models.config.decoder import DecoderConfig, Traits, parse_decoder
from aiomlc.models.config.fields import Fields


def parse(fields: Fields) -> DecoderConfig:
    """Read a config of model type `cohere`."""
    if "context_window_size" in fields:
        problem = "is 'cohere' in MLC's form, whose rotation differs; give Hugging Face's directory"
        raise fields.error("model_type", problem)

    if fields.boolean("use_qk_norm", False):
        raise fields.error("use_qk_norm", "is true, which is not supported")

    bias = fields.boolean("attention_bias", False)
    traits = Traits(
        hf_qkv_layout="pairs",
        qkv_bias=bias,
        output_bias=bias,
        norm_kind="layer_without_bias",
        norm_eps="layer_norm_eps",
        norms="shared",
        tied=True,
        theta=500000.0,
    )
    config = parse_decoder(fields, "cohere", traits)
    return replace(config, logit_scale=fields.number("logit_scale", 0.0625))
