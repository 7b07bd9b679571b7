"""JSON texts of responses."""

from __future__ import annotations

__all__ = ("to_json",)

import orjson
from pydantic import BaseModel


def to_json(value: object) -> bytes:
    """Return the JSON text of a wire model or of plain values, in UTF-8."""
    return orjson.dumps(value.model_dump() if isinstance(value, BaseModel) else value)
