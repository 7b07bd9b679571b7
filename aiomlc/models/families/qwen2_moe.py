"""Qwen 1.5 MoE and Qwen 2 MoE: routed experts, and a shared expert for all tokens."""

from __future__ import annotations

__all__ = ("parse",)

from aiomlc.models.config.decoder import DecoderConfig
from aiomlc.models.config.decoder_fields import ConfigRules, DecoderTraits, parse_decoder
from aiomlc.models.config.fields import Fields
from aiomlc.models.config.sliding_window import default_window
from aiomlc.models.families.moe_fields import with_experts


def parse(fields: Fields) -> DecoderConfig:
    """Read a config of model type `qwen2_moe`."""
    fields = default_window(fields)
    if fields.boolean("use_sliding_window", False) and "layer_types" not in fields:
        # Without layer_types, transformers chooses other layers than for Qwen 2.
        raise fields.error("use_sliding_window", "must be false without layer_types, got true")

    traits = DecoderTraits(qkv_name="c_attn", qkv_bias=fields.boolean("qkv_bias", True))
    config = parse_decoder(fields, "qwen2_moe", traits, ConfigRules(hf_window="switched"))
    return with_experts(
        config,
        fields,
        size_field="moe_intermediate_size",
        normalize=fields.boolean("norm_topk_prob", False),
        shared_size=fields.integer("shared_expert_intermediate_size"),
    )
