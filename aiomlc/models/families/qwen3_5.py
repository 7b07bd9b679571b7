"""Qwen 3.5: gated delta nets in three of four layers, and gated attention in the others."""

from __future__ import annotations

__all__ = (
    "parse",
    "parse_moe",
    "parse_moe_text",
    "parse_text",
    "parse_with_experts",
    "with_image_positions",
)

from aiomlc.models.config.decoder import DecoderConfig
from aiomlc.models.config.decoder_fields import ConfigRules, DecoderTraits, parse_decoder
from aiomlc.models.config.fields import Fields
from aiomlc.models.config.layers import GatedDeltaConfig
from aiomlc.models.config.rope_sections import with_sections
from aiomlc.models.families.layer_types import recurrent_layers
from aiomlc.models.families.moe_fields import with_experts

_ROTARY_FACTOR = 0.25
_INTERVAL = 4
_SECTIONS = (11, 11, 10)
_DEFAULTS = {"head_dim": 256}


def parse(fields: Fields) -> DecoderConfig:
    """Read a config of model type `qwen3_5`, which has the decoder's fields in `text_config`."""
    text = _text_fields(fields)
    return with_image_positions(text, _parse(text, "qwen3_5"))


def parse_text(fields: Fields) -> DecoderConfig:
    """Read a config of model type `qwen3_5_text`."""
    return _parse(fields, "qwen3_5_text")


def parse_moe(fields: Fields) -> DecoderConfig:
    """Read a config of model type `qwen3_5_moe`, with the decoder's fields in `text_config`."""
    text = _text_fields(fields)
    return with_image_positions(text, parse_with_experts(text, "qwen3_5_moe"))


def parse_moe_text(fields: Fields) -> DecoderConfig:
    """Read a config of model type `qwen3_5_moe_text`."""
    return parse_with_experts(fields, "qwen3_5_moe_text")


def with_image_positions(fields: Fields, config: DecoderConfig) -> DecoderConfig:
    """Return a decoder of text as one whose positions have a time, a height and a width.

    Raises:
        ModelLoadError: If a section of RoPE is invalid.
    """
    return with_sections(fields, config, _SECTIONS, interleaved=True)


def _text_fields(fields: Fields) -> Fields:
    tied = fields.boolean("tie_word_embeddings", False)
    return fields.flattened("text_config").replaced(tie_word_embeddings=tied)


def _parse(fields: Fields, model_type: str, hf_fused: tuple[str, ...] = ()) -> DecoderConfig:
    bias = fields.boolean("attention_bias", False)
    fields.choice("hidden_act", ("silu",), "silu")
    traits = DecoderTraits(
        hf_fused=hf_fused, qkv_bias=bias, output_bias=bias, qk_norm="per_head", hf_norm_offset=1.0
    )
    rules = ConfigRules(head_dim=_DEFAULTS["head_dim"], partial_rotary_factor=_ROTARY_FACTOR)
    config = parse_decoder(fields, model_type, traits, rules).with_attention(output_gate=True)
    layers = config.num_hidden_layers
    interval = fields.integer("full_attention_interval", _INTERVAL)
    default = [
        "linear_attention" if (layer + 1) % interval else "full_attention"
        for layer in range(layers)
    ]
    linear = recurrent_layers(fields, layers, "linear_attention", default)
    return config.with_recurrent(_delta_net(fields), linear)


def _delta_net(fields: Fields) -> GatedDeltaConfig:
    key_heads = fields.integer("linear_num_key_heads", 16)
    value_heads = fields.integer("linear_num_value_heads", 32)
    if value_heads % key_heads:
        problem = f"must be a multiple of linear_num_key_heads ({key_heads}), got {value_heads}"
        raise fields.error("linear_num_value_heads", problem)

    return GatedDeltaConfig(
        num_key_heads=key_heads,
        num_value_heads=value_heads,
        key_dim=fields.integer("linear_key_head_dim", 128),
        value_dim=fields.integer("linear_value_head_dim", 128),
        width=fields.integer("linear_conv_kernel_dim", 4),
        head_order="tiled" if fields.boolean("linear_heads_are_tiled", False) else "grouped",
        rates="negative" if fields.boolean("linear_rates_are_negative", False) else "log",
    )


def parse_with_experts(
    fields: Fields, model_type: str, *, hf_fused: tuple[str, ...] = (), normalize: bool = True
) -> DecoderConfig:
    """Read a config of a model with experts.

    Args:
        fields: The model's config.
        model_type: The family.
        hf_fused: See `DecoderTraits`.
        normalize: See `ExpertsConfig`.
    """
    # If every layer has experts, the field for an MLP is absent.
    size = fields.integer("moe_intermediate_size")
    config = _parse(fields.with_defaults(intermediate_size=size), model_type, hf_fused)
    return with_experts(
        config,
        fields,
        size_field="moe_intermediate_size",
        normalize=normalize,
        shared_size=fields.integer("shared_expert_intermediate_size"),
    )
