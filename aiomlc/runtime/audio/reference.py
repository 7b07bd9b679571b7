"""The audio of a chat before it is read."""

from __future__ import annotations

__all__ = ("AudioReference",)

from dataclasses import dataclass

from aiomlc.validation.json_values import safe_repr


@dataclass(frozen=True, slots=True, repr=False)
class AudioReference:
    """The bytes of a file, in base64 or as they are."""

    source: str | bytes

    def __repr__(self) -> str:
        return f"AudioReference({safe_repr(self.source)})"
