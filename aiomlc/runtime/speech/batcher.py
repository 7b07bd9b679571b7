"""Batches of a speech model: the windows of concurrent requests are decoded together.

There is no batching task. A caller that finds the model idle runs it for the next tokens of all
waiting callers. A cancelled caller withdraws its tokens and frees its slot.
"""

from __future__ import annotations

__all__ = ("Reduce", "SpeechBatcher")

import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias, TypeVar, final

import numpy as np
from anyio import CapacityLimiter, Lock, Semaphore
from anyio.lowlevel import checkpoint

from aiomlc.errors import AiomlcError, EngineClosedError, RequestFailedError
from aiomlc.runtime.concurrency.worker_thread import run_to_end
from aiomlc.runtime.native.speech import SlotTokens, SpeechModel

if TYPE_CHECKING:
    from numpy.typing import NDArray

T = TypeVar("T")
#: Returns what a caller needs of the logits of its picked tokens, `[picked, vocab]`. Runs in a
#: thread.
Reduce: TypeAlias = "Callable[[NDArray[np.float32]], T]"


@dataclass(eq=False)
class _Step:
    """The next tokens of one caller."""

    tokens: SlotTokens
    reduce: Callable[[NDArray[np.float32]], object]
    outcome: list[object | Exception] = field(default_factory=list)  # One item when it is done.
    is_abandoned: bool = False  # Whether its caller was cancelled.


@final
class SpeechBatcher:
    """One model shared by concurrent callers. It belongs to one event loop.

    Args:
        model: The model, which runs in a worker thread, one batch at a time.
    """

    def __init__(self, model: SpeechModel) -> None:
        self.num_tokens: int = 0  #: Tokens computed so far.
        self.num_batches: int = 0
        self.num_waiting: int = 0  #: Windows that wait for a slot.
        self.seconds: float = 0.0  #: The total time of the model.
        self._model: SpeechModel | None = model
        self._free = list(reversed(range(model.num_slots)))
        self._slots = Semaphore(model.num_slots)
        self._waiting: deque[_Step] = deque()
        self._lock = Lock()
        self._limiter = CapacityLimiter(1)

    def __repr__(self) -> str:
        state = "closed" if self._model is None else "open"
        return f"<SpeechBatcher {state}, {len(self._free)} free slots>"

    @property
    def num_free_slots(self) -> int:
        """The windows that can be decoded beside the current ones."""
        return len(self._free)

    @asynccontextmanager
    async def window(self, features: NDArray[np.float32]) -> AsyncIterator[int]:
        """Encode a window, and hold the slot whose tokens attend to it.

        Args:
            features: float32 `[frames, mels]`.

        Raises:
            EngineClosedError: If the batcher is closed.
            RequestFailedError: If the model failed.
        """
        self.num_waiting += 1
        try:
            await self._slots.acquire()
        finally:
            self.num_waiting -= 1

        slot = self._free.pop()
        try:
            async with self._lock:
                await self._run(lambda model: model.encode(features, slot))
            yield slot
        finally:
            self._free.append(slot)
            self._slots.release()

    async def decode(self, tokens: SlotTokens, reduce: Reduce[T]) -> T:
        """Decode the next tokens of a slot, and return the reduced logits of the picked ones.

        Raises:
            EngineClosedError: If the batcher is closed.
            RequestFailedError: If the model failed, or a logit is not finite.
        """
        # Before anything is awaited, so that callers of the last batch are in the next one.
        step = _Step(tokens, reduce)
        self._waiting.append(step)
        try:
            await checkpoint()
            while not step.outcome:
                async with self._lock:
                    if not step.outcome:
                        await self._run_batch()
        finally:
            step.is_abandoned = True
            if step in self._waiting:
                self._waiting.remove(step)

        outcome = step.outcome[0]
        if isinstance(outcome, Exception):
            raise outcome

        result: T = outcome  # type: ignore[assignment]  # What `reduce` returned.
        return result

    def close(self) -> None:
        """Release the model; waiting callers get `EngineClosedError`. Thread-safe."""
        self._model = None

    async def _run_batch(self) -> None:
        steps = list(self._waiting)
        self._waiting.clear()
        try:
            outcomes = await self._run(lambda model: _forward(model, steps))
        except BaseException:
            self._waiting.extendleft(step for step in reversed(steps) if not step.is_abandoned)
            raise

        self.num_batches += 1
        for step, outcome in zip(steps, outcomes, strict=True):
            self.num_tokens += len(step.tokens.ids)
            step.outcome.append(outcome)

    async def _run(self, function: Callable[[SpeechModel], T]) -> T:
        model = self._model
        if model is None:
            raise EngineClosedError

        start = time.perf_counter()
        try:
            return await run_to_end(lambda: function(model), self._limiter)
        except AiomlcError:
            raise
        except Exception as error:
            raise RequestFailedError(f"the speech model failed: {error}") from error
        finally:
            self.seconds += time.perf_counter() - start


def _forward(model: SpeechModel, steps: Sequence[_Step]) -> list[object]:
    logits = model.decode([step.tokens for step in steps])
    ends = np.cumsum([len(step.tokens.picked) for step in steps])[:-1]
    return [_reduced(step, part) for step, part in zip(steps, np.split(logits, ends), strict=True)]


def _reduced(step: _Step, logits: NDArray[np.float32]) -> object | Exception:
    """Return what a caller needs, or its error, which is none of the other callers."""
    if not np.isfinite(logits).all():
        return RequestFailedError("the speech model's outputs are not finite")

    try:
        return step.reduce(logits)
    except Exception as error:  # noqa: BLE001 - raised where the result is awaited.
        return RequestFailedError(f"the speech model failed: {error}")
