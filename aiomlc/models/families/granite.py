"""Granite 3: Llama with factors on embeddings, residual updates, attention scores and logits."""

from __future__ import annotations

__all__ = ("parse", "with_granite_scales")

from dataclasses import replace

from aiomlc.models.config.decoder import DecoderConfig
from aiomlc.models.config.decoder_fields import DecoderTraits, parse_decoder
from aiomlc.models.config.fields import Fields


def parse(fields: Fields) -> DecoderConfig:
    """Read a config of model type `granite`."""
    bias = fields.boolean("attention_bias", False)
    traits = DecoderTraits(qkv_bias=bias, output_bias=bias)
    return with_granite_scales(parse_decoder(fields, "granite", traits), fields)


def with_granite_scales(config: DecoderConfig, fields: Fields) -> DecoderConfig:
    """Return the config with Granite's factors."""
    # The residual stream is divided by the factor on the updates, so that the updates need none.
    # Only norms read the stream, and scaling it by a factor changes nothing but their epsilon.
    residual = fields.number("residual_multiplier", 1.0)
    return replace(
        config.with_attention(scale=fields.number("attention_multiplier", 1.0)),
        embedding_scale=fields.number("embedding_multiplier", 1.0) / residual,
        logit_scale=1.0 / fields.number("logits_scaling", 1.0),
        norm_eps=config.norm_eps / residual**2,
    )
