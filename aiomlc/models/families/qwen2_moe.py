"""Qwen 1.5 and 2 with experts, and one more that all tokens go to."""

from __future__ import annotations

__all__ = ("parse",)

from dataclasses import replace

from aiomlc.models.config.decoder import DecoderConfig, Traits, parse_decoder
from aiomlc.models.config.fields import Fields
from aiomlc.models.config.moe import parse_experts


def parse(fields: Fields) -> DecoderConfig:
    """Read a config of model type `qwen2_moe`."""
    if fields.boolean("use_sliding_window", False) and "layer_types" not in fields:
        # Transformers' own rule for this family is not that of Qwen 2.
        raise fields.error("use_sliding_window", "is true without layer_types: not supported")

    bias = fields.boolean("qkv_bias", True)
    traits = Traits(qkv_name="c_attn", qkv_bias=bias, window="switched")
    normalize = fields.boolean("norm_topk_prob", False)
    experts = replace(
        parse_experts(fields, size="moe_intermediate_size", normalize=normalize),
        shared_size=fields.integer("shared_expert_intermediate_size"),
    )
    return replace(parse_decoder(fields, "qwen2_moe", traits), experts=experts)
