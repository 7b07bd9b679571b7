"""What a peer's process is asked for. It imports nothing that has to be installed."""

from __future__ import annotations

__all__ = ("Generate",)

from collections.abc import Sequence
from typing import Protocol


class Generate(Protocol):
    """Answer prompts of token ids, all at once, with exactly that many tokens each."""

    def __call__(self, prompts: Sequence[Sequence[int]], tokens: int) -> None: ...
