"""OLMoE: a mixture of experts in every layer, and QK-norm over all heads at once."""

from __future__ import annotations

__all__ = ("parse",)

from aiomlc.models.config.decoder import DecoderConfig
from aiomlc.models.config.decoder_fields import DecoderTraits, parse_decoder
from aiomlc.models.config.fields import Fields
from aiomlc.models.families.moe_fields import with_experts


def parse(fields: Fields) -> DecoderConfig:
    """Read a config of model type `olmoe`."""
    if "clip_qkv" in fields:
        raise fields.error("clip_qkv", "must be null: clipped queries and keys are not supported")

    bias = fields.boolean("attention_bias", False)
    traits = DecoderTraits(qkv_bias=bias, output_bias=bias, qk_norm="full_width")
    normalize = fields.boolean("norm_topk_prob", False)
    config = parse_decoder(fields, "olmoe", traits)
    return with_experts(config, fields, size_field="intermediate_size", normalize=normalize)
