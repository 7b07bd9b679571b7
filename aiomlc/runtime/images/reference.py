"""An image of a request before it is read."""

from __future__ import annotations

__all__ = ("ImageReference",)

from dataclasses import dataclass

from aiomlc.runtime.images.image_data import ImageData
from aiomlc.validation.json_values import safe_repr


@dataclass(frozen=True, slots=True, repr=False)
class ImageReference:
    """A URL (`data:`, `file:`, `http:`, `https:`), the bytes of a file, or a decoded image."""

    source: str | bytes | ImageData

    def __repr__(self) -> str:
        return f"ImageReference({safe_repr(self.source)})"
