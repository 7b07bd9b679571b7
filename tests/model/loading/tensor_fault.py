"""What a mutation says of the tensors that it changed."""

from __future__ import annotations

__all__ = ("Fault", "TensorFault", "flip", "poison")

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_PATTERNS = (b"\0", b"\xff", b"\x7f", b"\x80", b"\x00\x7c", b"\x00\x00\x80\x7f", b"\x00\x3c")


@dataclass(frozen=True)
class TensorFault:
    """A change of one tensor, or of several; an error has to name one of `tensors`."""

    detail: str
    tensors: tuple[str, ...]
    is_fatal: bool = False  #: Whether no model may open with it.

    def __str__(self) -> str:
        return f" {self.detail} of {' and '.join(self.tensors)}"


#: Changes a file, and returns details of the change.
Fault = Callable[[Path, random.Random], str | TensorFault | None]


def flip(path: Path, rng: random.Random, start: int, end: int) -> str:
    """Overwrite a few of the bytes [start, end) of a file."""
    count = rng.choice((1, 3, 30))
    with path.open("r+b") as file:
        for _ in range(count):
            file.seek(rng.randrange(start, end))
            file.write(rng.randbytes(1))
    return f" {count} of {start} to {end}"


def poison(path: Path, rng: random.Random, start: int, end: int) -> str:
    """Fill a part of the bytes [start, end) with zeros, ones, infinities or the like."""
    pattern = rng.choice(_PATTERNS)
    begin, stop = sorted(rng.choices(range(start, end + 1), k=2))
    if rng.random() < 0.5:
        begin, stop = start, end
    begin += (start - begin) % len(pattern)
    count = max(stop - begin, 0)
    with path.open("r+b") as file:
        file.seek(begin)
        file.write((pattern * (count // len(pattern) + 1))[:count])
    return f"bytes {begin} to {stop} are {pattern.hex()}"
