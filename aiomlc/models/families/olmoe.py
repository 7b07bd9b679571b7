"""OLMoE: experts in every layer, and norms of queries and keys that span all heads."""

from __future__ import annotations

__all__ = ("parse",)

from dataclasses import replace

from aiomlc.models.config.decoder import DecoderConfig, Traits, parse_decoder
from aiomlc.models.config.fields import Fields
from aiomlc.models.config.moe import parse_experts


def parse(fields: Fields) -> DecoderConfig:
    """Read a config of model type `olmoe`."""
    if "clip_qkv" in fields:
        raise fields.error("clip_qkv", "is set, which is not supported")

    bias = fields.boolean("attention_bias", False)
    traits = Traits(qkv_bias=bias, output_bias=bias, qk_norm=True, qk_norm_full_width=True)
    normalize = fields.boolean("norm_topk_prob", False)
    experts = parse_experts(fields, size="intermediate_size", normalize=normalize)
    return replace(parse_decoder(fields, "olmoe", traits), experts=experts)
