"""Protocol of a peer's generate function. Imports only the standard library."""

from __future__ import annotations

__all__ = ("Generate",)

from collections.abc import Sequence
from typing import Protocol


class Generate(Protocol):
    """Generate exactly `tokens` tokens for each prompt of token ids, as one batch."""

    def __call__(self, prompts: Sequence[Sequence[int]], tokens: int) -> None: ...
