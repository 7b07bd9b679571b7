"""Stop strings for programs that handle token ids themselves."""

from __future__ import annotations

__all__ = ("StopStrHandler",)

from collections import deque
from collections.abc import Sequence
from typing import final

from aiomlc.errors import BadRequestError
from aiomlc.runtime.tokenization.tokenizer import Tokenizer
from aiomlc.validation.arguments import check_str, check_token_ids, check_type, plain_list


@final
class StopStrHandler:
    """A filter of one sequence's tokens, which ends before the first stop string.

    Tokens that may be part of a stop string are held back. A token of which only the end is part of
    the stop string is dropped as well.

    Args:
        stop_strs: The stop strings.
        tokenizer: The tokenizer of an engine.

    Raises:
        BadRequestError: If a stop string is empty, or an argument has the wrong type.
    """

    def __init__(self, stop_strs: Sequence[str], tokenizer: Tokenizer) -> None:
        check_type("tokenizer", tokenizer, Tokenizer, "a Tokenizer")
        texts = plain_list("stop_strs", stop_strs)
        for index, text in enumerate(texts):
            check_str(f"stop_strs[{index}]", text)
            if not text:
                raise BadRequestError("Stop string cannot be empty.", param="stop_strs")

        self.stop_triggered: bool = False  #: Whether a stop string was found.
        self._stops = [text.encode() for text in texts]
        self._vocab_bytes = tokenizer.vocab_bytes
        self._held: deque[int] = deque()  # Token ids.
        self._text = b""  # Of the held tokens.

    def put(self, token_id: int) -> list[int]:
        """Append a token, and return the tokens that are not part of a stop string.

        Raises:
            BadRequestError: If a stop string was found before, or the token id is out of range.
        """
        if self.stop_triggered:
            raise BadRequestError("Cannot put new token when already stopped.")

        check_token_ids("token_id", [token_id], len(self._vocab_bytes))
        self._held.append(token_id)
        self._text += self._vocab_bytes[token_id]
        start = self._find_stop()
        self.stop_triggered = start is not None
        return self._release(len(self._text) - self._num_pending() if start is None else start)

    def finish(self) -> list[int]:
        """Return the tokens that are still held; none if a stop string was found."""
        held = [] if self.stop_triggered else list(self._held)
        self._held.clear()
        self._text = b""
        return held

    def _find_stop(self) -> int | None:
        """Return where the stop string starts that ends first, and of these the longest."""
        found = [(self._text.find(stop), len(stop)) for stop in self._stops]
        ends = [(start + length, start) for start, length in found if start >= 0]
        return min(ends)[1] if ends else None

    def _num_pending(self) -> int:
        """Return the length of the longest suffix of the text that is a prefix of a stop string."""
        return max((_overlap(self._text, stop) for stop in self._stops), default=0)

    def _release(self, length: int) -> list[int]:
        """Return the held tokens within the first `length` bytes."""
        released: list[int] = []
        end = 0
        while self._held:
            next_end = end + len(self._vocab_bytes[self._held[0]])
            if next_end > length:
                break

            end = next_end
            released.append(self._held.popleft())

        self._text = self._text[end:]
        return released


def _overlap(text: bytes, stop: bytes) -> int:
    for length in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:length]):
            return length

    return 0
