"""The rules by which tokens of a window are chosen: what is suppressed, and when timestamps come.

The rules and their order are those of Whisper, as transformers applies them.
"""

from __future__ import annotations

__all__ = ("TokenRules",)

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final, final

import numpy as np

from aiomlc.runtime.speech.generation import SpeechTokens

if TYPE_CHECKING:
    from numpy.typing import NDArray

_NEVER: Final = -np.inf


@final
class TokenRules:
    """Applies the rules to logits.

    Args:
        tokens: The special tokens of the model.
        with_timestamps: Whether the text has timestamps.
    """

    def __init__(self, tokens: SpeechTokens, *, with_timestamps: bool) -> None:
        self.tokens: SpeechTokens = tokens
        self._with_timestamps = with_timestamps

    def apply(self, logits: NDArray[np.float32], generated: Sequence[int]) -> NDArray[np.float32]:
        """Return the logits of the next token, minus infinity where it is not allowed.

        Args:
            logits: float32 `[vocab]`, unchanged.
            generated: The tokens of the window so far, without the prompt.
        """
        logits = logits.copy()
        if not generated:
            logits[list(self.tokens.suppressed_first)] = _NEVER
        logits[list(self.tokens.suppressed)] = _NEVER
        if self._with_timestamps:
            self._apply_timestamps(logits, generated)
        return logits

    def _apply_timestamps(self, logits: NDArray[np.float32], generated: Sequence[int]) -> None:
        first = self.tokens.first_timestamp
        logits[self.tokens.no_timestamps] = _NEVER
        self._pair(logits, generated)
        logits[first : self._earliest(generated)] = _NEVER
        if not generated:
            logits[:first] = _NEVER
            if self.tokens.max_first_timestamp is not None:
                logits[first + self.tokens.max_first_timestamp + 1 :] = _NEVER
        if _log_sum(logits[first:]) > logits[:first].max():
            logits[:first] = _NEVER

    def _pair(self, logits: NDArray[np.float32], generated: Sequence[int]) -> None:
        """Timestamps come in pairs: the end of a segment, and the begin of the next one."""
        first = self.tokens.first_timestamp
        if not generated or generated[-1] < first:
            return

        if self._is_complete(generated):
            logits[first:] = _NEVER
        else:
            logits[: self.tokens.end] = _NEVER

    def _is_complete(self, generated: Sequence[int]) -> bool:
        """Return whether the last token, a timestamp, begins a segment."""
        return len(generated) < 2 or generated[-2] >= self.tokens.first_timestamp

    def _earliest(self, generated: Sequence[int]) -> int:
        """Return the earliest timestamp that may follow; they never decrease."""
        first = self.tokens.first_timestamp
        last = next((token for token in reversed(generated) if token >= first), None)
        if last is None:
            return first

        ends_segment = generated[-1] >= first and not self._is_complete(generated)
        return last if ends_segment else last + 1

    @cached_property
    def language_ids(self) -> NDArray[np.int64]:
        """The tokens of languages, in the order of their codes in the files."""
        return np.array(list(self.tokens.languages.values()), np.int64)

    def language(self, logits: NDArray[np.float32]) -> str:
        """Return the code of the language that follows the start most probably."""
        best = int(np.argmax(logits[self.language_ids]))
        return list(self.tokens.languages)[best]


def _log_sum(logits: NDArray[np.float32]) -> float:
    """Return the logarithm of the sum of exponentials."""
    largest = float(logits.max())
    if largest == _NEVER:
        return largest

    return largest + float(np.log(np.exp(logits - np.float32(largest)).sum(dtype=np.float64)))
