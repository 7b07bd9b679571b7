"""Gemma 2: soft caps, norms on both sides of every part, and windows in every second layer."""

from __future__ import annotations

__all__ = ("parse",)

from aiomlc.models.config.decoder import DecoderConfig, parse_decoder
from aiomlc.models.config.fields import Fields
from aiomlc.models.families.gemma import as_gemma, gemma_traits

_ATTENTION_CAP = 50.0
_LOGIT_CAP = 30.0
_SCALED_SIZE = 256
_WINDOW = 4096


def parse(fields: Fields) -> DecoderConfig:
    """Read a config of model type `gemma2`."""
    fields = fields.filled(sliding_window=_WINDOW)
    traits = gemma_traits(fields, window="interleaved", full_every=2, norms="around")
    return as_gemma(
        parse_decoder(fields, "gemma2", traits),
        attention_scale=fields.number("query_pre_attn_scalar", _SCALED_SIZE) ** -0.5,
        attn_logit_softcapping=fields.optional_number("attn_logit_softcapping", _ATTENTION_CAP),
        final_logit_softcapping=fields.optional_number("final_logit_softcapping", _LOGIT_CAP),
    )
