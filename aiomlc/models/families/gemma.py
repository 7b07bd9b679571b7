"""Gemma: Llama with GELU, scaled embeddings, and norm weights stored minus one."""

from __future__ import annotations

__all__ = ("GEMMA_RULES", "gemma_traits", "parse", "with_gemma_scale")

import math
from dataclasses import replace

from aiomlc.models.config.decoder import DecoderConfig
from aiomlc.models.config.decoder_fields import ConfigRules, DecoderTraits, parse_decoder
from aiomlc.models.config.fields import Fields

GEMMA_RULES = ConfigRules(tie_word_embeddings=True, head_dim=256)


def parse(fields: Fields) -> DecoderConfig:
    """Read a config of model type `gemma`."""
    return with_gemma_scale(parse_decoder(fields, "gemma", gemma_traits(fields), GEMMA_RULES))


def gemma_traits(fields: Fields) -> DecoderTraits:
    """Return the traits that all Gemma versions share.

    Raises:
        ModelLoadError: If the config specifies a variant that is not supported.
    """
    fields.require_false("use_bidirectional_attention")
    bias = fields.boolean("attention_bias", False)
    return DecoderTraits(
        hf_norm_offset=1.0, qkv_bias=bias, output_bias=bias, activation="gelu_tanh"
    )


def with_gemma_scale(config: DecoderConfig) -> DecoderConfig:
    """Return the config with the embedding scale of all versions."""
    return replace(config, embedding_scale=math.sqrt(config.hidden_size))
