"""Command R and Aya: parallel attention and MLP with one shared, bias-free LayerNorm."""

from __future__ import annotations

__all__ = ("parse",)

from dataclasses import replace

from aiomlc.models.config.decoder import DecoderConfig
from aiomlc.models.config.decoder_fields import ConfigRules, DecoderTraits, parse_decoder
from aiomlc.models.config.fields import Fields


def parse(fields: Fields) -> DecoderConfig:
    """Read a config of model type `cohere`."""
    if "context_window_size" in fields:
        problem = (
            "is not supported in MLC format, which has another RoPE layout: "
            "use the Hugging Face directory"
        )
        raise fields.error("model_type", f'"cohere" {problem}')

    fields.require_false("use_qk_norm")
    bias = fields.boolean("attention_bias", False)
    traits = DecoderTraits(
        hf_qkv_layout="interleaved_rope",
        qkv_bias=bias,
        output_bias=bias,
        norm_kind="layer_without_bias",
        norm_placement="parallel_shared",
    )
    rules = ConfigRules(
        norm_eps_field="layer_norm_eps", tie_word_embeddings=True, rope_theta=500000.0
    )
    config = parse_decoder(fields, "cohere", traits, rules)
    return replace(config, logit_scale=fields.number("logit_scale", 0.0625))
