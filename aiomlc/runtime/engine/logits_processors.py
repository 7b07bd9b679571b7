"""Logits processors: functions of the caller that change logits, in the step thread."""

from __future__ import annotations

__all__ = ("LogitsProcessor", "LogitsProcessors", "ProcessedSequence")

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias, final

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: A function that changes the raw logits of the next token in place.
#:
#: Its arguments are the token ids of the prompt and of the completion so far, and the logits,
#: float32 `[vocab_size]`. Its result is ignored. Both are reused: the list of token ids grows, and
#: the array is overwritten for every token, so a function that keeps them has to copy them.
LogitsProcessor: TypeAlias = "Callable[[Sequence[int], NDArray[np.float32]], object]"


@final
class LogitsProcessors:
    """The logits processors of one request, and the exception that one of them raised."""

    def __init__(self, functions: Iterable[LogitsProcessor]) -> None:
        self._functions = tuple(functions)
        self._failure: BaseException | None = None

    def run(self, token_ids: Sequence[int], logits: NDArray[np.float32]) -> bool:
        """Call the functions in order; return False if one of them raises an exception."""
        try:
            for function in self._functions:
                function(token_ids, logits)
        except BaseException as error:  # noqa: BLE001 - the cause of the request's error.
            self._failure = error
            return False

        return True

    def take_failure(self) -> BaseException | None:
        """Return the exception and forget it, since its traceback refers to this object."""
        failure, self._failure = self._failure, None
        return failure


@final
class ProcessedSequence:
    """The callback of the core for each token of one sequence."""

    def __init__(self, processors: LogitsProcessors, vocab_size: int) -> None:
        import numpy as np

        self.logits: NDArray[np.float32] = np.zeros(vocab_size, np.float32)
        self._processors = processors
        self._token_ids: list[int] = []

    def __call__(self, token_ids: Iterable[int]) -> bool:
        """Run the processors on `logits`; `token_ids` are new since the last call."""
        self._token_ids += token_ids
        return self._processors.run(self._token_ids, self.logits)
