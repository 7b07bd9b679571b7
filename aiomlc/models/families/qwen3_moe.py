"""Qwen 3 with experts: the attention of Qwen 3, and mixtures for gated layers."""

from __future__ import annotations

__all__ = ("parse",)

from dataclasses import replace

from aiomlc.models.config.decoder import DecoderConfig, Traits, parse_decoder
from aiomlc.models.config.fields import Fields
from aiomlc.models.config.moe import parse_experts


def parse(fields: Fields) -> DecoderConfig:
    """Read a config of model type `qwen3_moe`."""
    bias = fields.boolean("attention_bias", False)
    # Unlike the windows of Qwen 3, all layers have them then.
    slides = fields.boolean("use_sliding_window", False)
    traits = Traits(
        qkv_name="c_attn",
        qkv_bias=bias,
        output_bias=bias,
        qk_norm=True,
        window="always" if slides else "never",
    )
    experts = parse_experts(
        fields,
        size="moe_intermediate_size",
        normalize=fields.boolean("norm_topk_prob", False),
    )
    return replace(parse_decoder(fields, "qwen3_moe", traits), experts=experts)
