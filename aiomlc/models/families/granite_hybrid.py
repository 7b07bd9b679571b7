"""Granite 4, as far as it is Granite 3 by other names: with attention and one gated layer."""

from __future__ import annotations

__all__ = ("parse",)

from dataclasses import replace

from aiomlc.models.config.decoder import DecoderConfig, Traits, parse_decoder
from aiomlc.models.config.fields import Fields
from aiomlc.models.families.granite import scaled

_ATTENTION = ("attention", "full_attention")


def parse(fields: Fields) -> DecoderConfig:
    """Read a config of model type `granitemoehybrid`."""
    for kind in fields.texts("layer_types"):
        if kind not in _ATTENTION:
            raise fields.error("layer_types", f"has {kind!r}; supported: {', '.join(_ATTENTION)}")

    if (experts := fields.integer("num_local_experts", minimum=0)) > 0:
        raise fields.error("num_local_experts", f"is {experts}; supported: 0")

    if (positions := fields.text("position_embedding_type")) != "rope":
        raise fields.error("position_embedding_type", f"is {positions!r}; supported: rope")

    bias = fields.boolean("attention_bias", False)
    traits = Traits(hf_fused=("gate_up_proj",), qkv_bias=bias, output_bias=bias)
    config = parse_decoder(fields, "granitemoehybrid", traits)
    inner = fields.integer("shared_intermediate_size")
    return scaled(replace(config, intermediate_size=inner), fields)
