"""Changes of files, as damage and attackers make them. Everything follows from a seed."""

from __future__ import annotations

__all__ = ("mutated",)

import random
from collections.abc import Callable


def mutated(data: bytes, random_: random.Random) -> bytes:
    """Return a file with one to three changes."""
    changed = bytearray(data)
    for _ in range(random_.randint(1, 3)):
        random_.choice(_CHANGES)(changed, random_)
    return bytes(changed)


def _truncate(data: bytearray, random_: random.Random) -> None:
    del data[random_.randrange(len(data) + 1) :]


def _flip_bits(data: bytearray, random_: random.Random) -> None:
    for _ in range(random_.randint(1, 16)):
        if data:
            data[random_.randrange(len(data))] ^= 1 << random_.randrange(8)


def _change_header(data: bytearray, random_: random.Random) -> None:
    for _ in range(random_.randint(1, 6)):
        if data:
            data[random_.randrange(min(len(data), 64))] = random_.choice((0, 1, 127, 128, 255))


def _remove_bytes(data: bytearray, random_: random.Random) -> None:
    start = random_.randrange(len(data) + 1)
    del data[start : start + random_.randint(1, 64)]


def _repeat_bytes(data: bytearray, random_: random.Random) -> None:
    start = random_.randrange(len(data) + 1)
    data[start:start] = data[start : start + random_.randint(1, 64)] * random_.randint(1, 50)


def _overwrite(data: bytearray, random_: random.Random) -> None:
    start = random_.randrange(len(data) + 1)
    data[start : start + 16] = random_.randbytes(16)


_CHANGES: tuple[Callable[[bytearray, random.Random], None], ...] = (
    _truncate,
    _flip_bits,
    _change_header,
    _remove_bytes,
    _repeat_bytes,
    _overwrite,
)
