"""Decoders of configs that a test writes."""

from __future__ import annotations

__all__ = ("read_decoder",)

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aiomlc.models import DecoderConfig, read_description


def read_decoder(directory: Path, config: Mapping[str, Any]) -> DecoderConfig:
    """Write a `config.json`, and return the decoder that is read from it."""
    (directory / "config.json").write_text(json.dumps(config))
    decoder = read_description(directory).config
    assert isinstance(decoder, DecoderConfig)
    return decoder
