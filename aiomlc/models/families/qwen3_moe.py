"""Qwen 3 MoE: Qwen 3 with a mixture of experts in place of the MLP."""

from __future__ import annotations

__all__ = ("parse",)

from aiomlc.models.config.decoder import DecoderConfig
from aiomlc.models.config.decoder_fields import ConfigRules, DecoderTraits, parse_decoder
from aiomlc.models.config.fields import Fields
from aiomlc.models.config.sliding_window import default_window
from aiomlc.models.families.moe_fields import with_experts


def parse(fields: Fields) -> DecoderConfig:
    """Read a config of model type `qwen3_moe`."""
    fields = default_window(fields)
    bias = fields.boolean("attention_bias", False)
    # Unlike in Qwen 3, the window applies to all layers.
    is_sliding = fields.boolean("use_sliding_window", False)
    traits = DecoderTraits(qkv_name="c_attn", qkv_bias=bias, output_bias=bias, qk_norm="per_head")
    normalize = fields.boolean("norm_topk_prob", False)
    rules = ConfigRules(hf_window="always" if is_sliding else "never")
    config = parse_decoder(fields, "qwen3_moe", traits, rules)
    return with_experts(config, fields, size_field="moe_intermediate_size", normalize=normalize)
