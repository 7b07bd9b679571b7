"""Gemma 2: softcapping, sandwich norms, and a sliding window in every second layer."""

from __future__ import annotations

__all__ = ("parse",)

from dataclasses import replace

from aiomlc.models.config.decoder import DecoderConfig
from aiomlc.models.config.decoder_fields import parse_decoder
from aiomlc.models.config.fields import Fields
from aiomlc.models.config.sliding_window import default_window
from aiomlc.models.families.gemma import GEMMA_RULES, gemma_traits, with_gemma_scale

# The defaults of transformers.
_ATTENTION_CAP = 50.0
_LOGIT_CAP = 30.0
_QUERY_SCALAR = 256


def parse(fields: Fields) -> DecoderConfig:
    """Read a config of model type `gemma2`."""
    fields = default_window(fields)
    traits = replace(gemma_traits(fields), norm_placement="sandwich")
    rules = replace(GEMMA_RULES, hf_window="interleaved", full_attention_interval=2)
    config = with_gemma_scale(parse_decoder(fields, "gemma2", traits, rules))
    cap = fields.optional_number("final_logit_softcapping", _LOGIT_CAP)
    return replace(config, final_logit_softcapping=cap).with_attention(
        scale=fields.number("query_pre_attn_scalar", _QUERY_SCALAR) ** -0.5,
        soft_cap=fields.optional_number("attn_logit_softcapping", _ATTENTION_CAP),
    )
