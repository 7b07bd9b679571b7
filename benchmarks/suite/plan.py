"""The measurements of the suite: one row of the table per kind and size."""

from __future__ import annotations

__all__ = (
    "BATCH_PROMPT",
    "BATCH_TOKENS",
    "DECODE_TOKENS",
    "LONG_ROWS",
    "ROWS",
    "Kind",
    "Row",
    "select",
)

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal[
    "load", "first-token", "prefill", "decode", "batch", "stream-overhead", "idle", "memory"
]

DECODE_TOKENS: Final = 128
BATCH_PROMPT: Final = 128
BATCH_TOKENS: Final = 64


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement of the plan."""

    kind: Kind
    title: str
    unit: str
    size: int = 0  #: Tokens of the prompt or context, or number of sequences; 0 if not applicable.
    sized: bool = False
    more_is_better: bool = False

    @property
    def name(self) -> str:
        """Name for `--only`: the kind, followed by the size where the kind has several."""
        return f"{self.kind}-{self.size}" if self.sized else self.kind


def _sized(kind: Kind, title: str, sizes: Sequence[int]) -> list[Row]:
    return [Row(kind, title.format(size), "tokens/s", size, True, True) for size in sizes]


ROWS: Final = (
    Row("load", "Process start to ready, second start", "s"),
    Row("first-token", "First token of a prompt of 16 tokens", "ms", 16),
    *_sized("prefill", "Prefill of {} tokens", (128, 512, 2048)),
    *_sized("decode", "Decode, one stream, after {} tokens", (0, 1024, 4096)),
    *_sized("batch", "Decode, batch of {}, in total", (1, 2, 4, 8, 16)),
    Row("stream-overhead", "Python's CPU time per streamed token", "us"),
    Row("idle", "CPU use of an idle engine", "%"),
    Row("memory", "Peak memory of a process that loads and answers", "MB"),
)

#: What takes minutes for each sample, and is only measured if it is named. With its prompt and what
#: is generated, a sequence of the longest fits into a context of 16,384 tokens.
LONG_ROWS: Final = (
    *_sized("prefill", "Prefill of {} tokens", (4096, 8000, 16_000)),
    *_sized("decode", "Decode, one stream, after {} tokens", (8000, 16_000)),
)


def select(names: Sequence[str]) -> list[Row]:
    """Return the rows with the given names or kinds, or `ROWS` if `names` is empty.

    Raises:
        ValueError: If a name matches no row.
    """
    known = dict.fromkeys(text for row in ROWS for text in (row.kind, row.name))
    known |= dict.fromkeys(row.name for row in LONG_ROWS)
    for name in names:
        if name not in known:
            expected = ", ".join(known)
            raise ValueError(f"unknown measurement {name!r}, expected one of {expected}")

    usual = [row for row in ROWS if not names or row.name in names or row.kind in names]
    return [*usual, *(row for row in LONG_ROWS if row.name in names)]
