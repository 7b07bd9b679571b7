"""The limits on the audio of a request."""

from __future__ import annotations

__all__ = ("AudioLimits",)

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class AudioLimits:
    """The limits on audio that clients send."""

    max_seconds: float = 3600.0  #: Of audio; a second takes up to 350 kB.
    max_bytes: int = 2**29  #: Of an encoded file.
    decode_seconds: float = 120.0  #: For a file.
