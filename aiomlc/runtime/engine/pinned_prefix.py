"""A beginning of prompts that stays computed for as long as somebody wants it."""

from __future__ import annotations

__all__ = ("PinnedPrefix",)

from types import TracebackType
from typing import Self, final

from aiomlc.runtime.engine.core_protocol import Core


@final
class PinnedPrefix:
    """Tokens that stay in the prefix cache until `release`, or the end of a `with` block.

    Without either they stay for as long as the model is loaded.
    """

    def __init__(self, core: Core, sequence_id: int, num_tokens: int) -> None:
        self.num_tokens = num_tokens
        self.is_released: bool = False
        self._core = core
        self._sequence_id = sequence_id

    def __repr__(self) -> str:
        state = "released" if self.is_released else "pinned"
        return f"<PinnedPrefix {state}, {self.num_tokens} tokens>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()

    def release(self) -> None:
        """Let the tokens go as soon as their room is needed.

        From any thread; never blocks. A second call does nothing.
        """
        if not self.is_released:
            self.is_released = True
            self._core.unpin(self._sequence_id)
