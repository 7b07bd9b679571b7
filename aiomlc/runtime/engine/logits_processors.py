"""A caller's own functions that change logits, on the thread that steps the model."""

from __future__ import annotations

__all__ = ("LogitsProcessor", "LogitsProcessors", "ProcessedSequence")

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias, final

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Changes the second argument, the raw logits of the next token, float32 `[vocab_size]`, in place.
#: The first has the token ids so far, the prompt's and the answer's. What it returns is not looked
#: at. The array is written anew for every token.
LogitsProcessor: TypeAlias = "Callable[[Sequence[int], NDArray[np.float32]], object]"


@final
class LogitsProcessors:
    """The functions of one request, and what one of them raised."""

    def __init__(self, functions: Iterable[LogitsProcessor]) -> None:
        self._functions = tuple(functions)
        self._failure: BaseException | None = None

    def run(self, token_ids: Sequence[int], logits: NDArray[np.float32]) -> bool:
        """Call each in turn; false when one has raised, whatever it was."""
        try:
            for function in self._functions:
                function(token_ids, logits)
        except BaseException as error:  # noqa: BLE001 - it becomes the cause of the request's end.
            self._failure = error
            return False

        return True

    def take_failure(self) -> BaseException | None:
        """What was raised, once: its traceback knows this object."""
        failure, self._failure = self._failure, None
        return failure


@final
class ProcessedSequence:
    """What the core calls for each token of one sequence."""

    def __init__(self, processors: LogitsProcessors, vocab_size: int) -> None:
        import numpy as np

        self.logits: NDArray[np.float32] = np.zeros(vocab_size, np.float32)
        self._processors = processors
        self._token_ids: tuple[int, ...] = ()

    def __call__(self, token_ids: Iterable[int]) -> bool:
        """Change `logits`; the token ids are those since the last call."""
        self._token_ids = (*self._token_ids, *token_ids)
        return self._processors.run(self._token_ids, self.logits)
