"""MLC LLM's `tokenizer_info`: what it must know of a tokenizer to decode text piece by piece."""

from __future__ import annotations

__all__ = ("tokenizer_info",)

from collections.abc import Mapping
from typing import Any

_METASPACE = "\N{LOWER ONE EIGHTH BLOCK}"
_STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
_METHODS = {"ByteLevel": "byte_level", "ByteFallback": "byte_fallback"}


def tokenizer_info(tokenizer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields for the contents of a `tokenizer.json`."""
    decoders = _steps(tokenizer.get("decoder"), "decoders")
    normalizers = _steps(tokenizer.get("normalizer"), "normalizers")
    methods = [_METHODS[step["type"]] for step in decoders if step.get("type") in _METHODS]
    return {
        "token_postproc_method": methods[-1] if methods else "byte_fallback",
        "prepend_space_in_encode": any(
            step.get("type") == "Prepend" and step.get("prepend") == _METASPACE
            for step in normalizers
        ),
        "strip_space_in_decode": any(
            {name: step.get(name) for name in _STRIP} == _STRIP for step in decoders
        ),
    }


def _steps(component: object, name: str) -> list[Mapping[str, Any]]:
    """Return the parts of a decoder or normalizer, which may be a sequence."""
    if not isinstance(component, Mapping):
        return []

    parts = component.get(name) if component.get("type") == "Sequence" else [component]
    return [part for part in parts if isinstance(part, Mapping)] if isinstance(parts, list) else []
