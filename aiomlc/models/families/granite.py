"""Granite 3: Llama with factors of the embedding, of every update, of attention and of logits."""

from __future__ import annotations

__all__ = ("parse", "scaled")

from dataclasses import replace

from aiomlc.models.config.decoder import DecoderConfig, Traits, parse_decoder
from aiomlc.models.config.fields import Fields


def parse(fields: Fields) -> DecoderConfig:
    """Read a config of model type `granite`."""
    bias = fields.boolean("attention_bias", False)
    return scaled(parse_decoder(fields, "granite", Traits(qkv_bias=bias, output_bias=bias)), fields)


def scaled(config: DecoderConfig, fields: Fields) -> DecoderConfig:
    """The same with a Granite's factors."""
    # What reads the residual stream are norms, which a factor of all of it changes by their
    # epsilon alone: so the stream is kept in units of the updates, which need no factor then.
    unit = fields.number("residual_multiplier", 1.0)
    return replace(
        config,
        embedding_scale=fields.number("embedding_multiplier", 1.0) / unit,
        attention_scale=fields.number("attention_multiplier", 1.0),
        logit_scale=1.0 / fields.number("logits_scaling", 1.0),
        rms_norm_eps=config.rms_norm_eps / unit**2,
    )
