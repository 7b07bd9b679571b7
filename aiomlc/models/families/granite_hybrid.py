"""Granite 4 without Mamba layers and experts: Granite 3 with other tensor names."""

from __future__ import annotations

__all__ = ("parse",)

from aiomlc.models.config.decoder import DecoderConfig
from aiomlc.models.config.decoder_fields import ConfigRules, DecoderTraits, parse_decoder
from aiomlc.models.config.fields import Fields, quote
from aiomlc.models.families.granite import with_granite_scales

_ATTENTION_TYPES = ("attention", "full_attention")


def parse(fields: Fields) -> DecoderConfig:
    """Read a config of model type `granitemoehybrid`."""
    for layer_type in fields.strings("layer_types"):
        if layer_type not in _ATTENTION_TYPES:
            allowed = ", ".join(map(quote, _ATTENTION_TYPES))
            problem = f"must contain only {allowed}, got {quote(layer_type)}"
            raise fields.error("layer_types", problem)

    if (experts := fields.integer("num_local_experts")) > 0:
        raise fields.error("num_local_experts", f"must be 0, got {experts}")

    fields.choice("position_embedding_type", ("rope",))
    bias = fields.boolean("attention_bias", False)
    traits = DecoderTraits(hf_fused=("gate_up_proj",), qkv_bias=bias, output_bias=bias)
    rules = ConfigRules(intermediate_size_field="shared_intermediate_size")
    return with_granite_scales(parse_decoder(fields, "granitemoehybrid", traits, rules), fields)
