"""A prefix of prompts that is pinned in the prefix cache."""

from __future__ import annotations

__all__ = ("PinnedPrefix",)

from typing import Self, final

from aiomlc.runtime.concurrency.interrupts import uninterruptible
from aiomlc.runtime.engine.core_protocol import Core


@final
class PinnedPrefix:
    """A pinned prefix. `release`, or leaving it as a context manager, unpins it.

    A prefix that is not released stays pinned until the engine is reset or its model is unloaded.
    """

    def __init__(self, core: Core, sequence_id: int, num_tokens: int) -> None:
        self.num_tokens = num_tokens
        self.is_released: bool = False
        self._core = core
        self._sequence_id = sequence_id

    def __repr__(self) -> str:
        state = "released" if self.is_released else "pinned"
        return f"<PinnedPrefix {state}, {self.num_tokens} tokens>"

    @uninterruptible
    def __enter__(self) -> Self:
        return self

    @uninterruptible
    def __exit__(self, *exc_info: object) -> None:
        self.release()

    @uninterruptible
    def release(self) -> None:
        """Allow the prefix to be evicted when its pages are needed.

        Thread-safe and idempotent; never blocks.
        """
        if not self.is_released:
            self._core.unpin(self._sequence_id)
            self.is_released = True
