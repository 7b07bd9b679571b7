"""Mistral: Llama with a sliding window in every layer."""

from __future__ import annotations

__all__ = ("parse",)

from aiomlc.models.config.decoder import DecoderConfig
from aiomlc.models.config.decoder_fields import ConfigRules, parse_decoder
from aiomlc.models.config.fields import Fields
from aiomlc.models.config.sliding_window import default_window


def parse(fields: Fields) -> DecoderConfig:
    """Read a config of model type `mistral`."""
    return parse_decoder(default_window(fields), "mistral", rules=ConfigRules(hf_window="always"))
