"""Qwen 2 VL and 2.5 VL: Qwen 2 whose RoPE positions have a time, a height and a width."""

from __future__ import annotations

__all__ = ("parse", "parse_qwen2_vl")

from dataclasses import replace

from aiomlc.models.config.decoder import DecoderConfig
from aiomlc.models.config.fields import Fields
from aiomlc.models.config.rope_sections import with_sections
from aiomlc.models.families import qwen2

_SECTIONS = (16, 24, 24)
_THETA = 1_000_000.0
_EPS = 1e-5


def parse(fields: Fields) -> DecoderConfig:
    """Read a config of model type `qwen2_5_vl`."""
    return _parse(fields, "qwen2_5_vl")


def parse_qwen2_vl(fields: Fields) -> DecoderConfig:
    """Read a config of model type `qwen2_vl`."""
    return _parse(fields, "qwen2_vl")


def _parse(fields: Fields, model_type: str) -> DecoderConfig:
    text = text_fields(fields).with_defaults(rope_theta=_THETA, rms_norm_eps=_EPS)
    config = replace(qwen2.parse(text), model_type=model_type)
    return with_sections(text, config, _SECTIONS, interleaved=False)


def text_fields(fields: Fields) -> Fields:
    """Return the decoder's fields, which configs before transformers 5 have at the top level."""
    return fields.flattened("text_config") if "text_config" in fields else fields
