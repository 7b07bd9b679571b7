"""JSON form of configs and parameter records."""

from __future__ import annotations

__all__ = ("lists_to_tuples",)

from collections.abc import Mapping
from typing import Any


def lists_to_tuples(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return `values` with every list replaced by a tuple, as frozen dataclasses hold them."""
    return {name: _tuples(value) for name, value in values.items()}


def _tuples(value: Any) -> Any:  # noqa: ANN401 - JSON has no narrower type.
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
