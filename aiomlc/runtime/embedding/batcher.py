"""Batches of an encoder: the inputs of concurrent requests share forward passes.

There is no batching task. A caller that finds the encoder idle runs it on the inputs of all
waiting callers, up to the token budget. A cancelled caller withdraws only its inputs.
"""

from __future__ import annotations

__all__ = ("EncoderBatcher", "Reduce")

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, final

import numpy as np
from anyio import CapacityLimiter, Lock
from anyio.lowlevel import checkpoint

from aiomlc.errors import AiomlcError, EngineClosedError, RequestFailedError
from aiomlc.runtime.concurrency.worker_thread import run_to_end
from aiomlc.runtime.native.encoder import Encoder, EncoderInput

if TYPE_CHECKING:
    from numpy.typing import NDArray

Vector: TypeAlias = "NDArray[np.float32]"
#: Returns the results of an input for its rows, which must not keep them alive. Runs in a thread.
Reduce: TypeAlias = "Callable[[Vector], Sequence[Vector]]"


class _Request:
    """The inputs of one caller, and the results computed so far."""

    def __init__(self, inputs: Sequence[EncoderInput], reduce: Reduce) -> None:
        self.inputs = inputs
        self.reduce = reduce
        self.results: list[Sequence[Vector] | None] = [None] * len(inputs)
        self.is_finite = True
        self.queue = deque(range(len(inputs)))  # Indices of inputs that are in no batch yet.
        self.num_pending = len(inputs)  # Inputs without results.


class _Row(NamedTuple):
    """One input of a batch."""

    request: _Request
    position: int  # In `request.inputs`.

    @property
    def input(self) -> EncoderInput:
        return self.request.inputs[self.position]


@final
class EncoderBatcher:
    """One encoder shared by concurrent callers. It belongs to one event loop.

    Args:
        encoder: The encoder, which runs in a worker thread, one batch at a time.
        rows_per_token: Whether the encoder returns a row for each token, or one for each input.
        batch_tokens: The maximum number of tokens of a forward pass; a longer input runs alone.
    """

    def __init__(
        self, encoder: Encoder, *, rows_per_token: bool = True, batch_tokens: int = 2048
    ) -> None:
        self.num_tokens: int = 0  #: Tokens computed so far.
        self.num_batches: int = 0
        self.seconds: float = 0.0  #: The total time of forward passes.
        self._encoder: Encoder | None = encoder
        self._rows_per_token = rows_per_token
        self._batch_tokens = batch_tokens
        self._waiting: deque[_Request] = deque()
        self._batch_lock = Lock()
        self._thread_limiter = CapacityLimiter(1)

    @property
    def num_waiting(self) -> int:
        """The number of requests none of whose inputs is in a batch yet."""
        requests = list(self._waiting)  # Another thread may ask.
        return sum(len(request.queue) == len(request.inputs) for request in requests)

    def __repr__(self) -> str:
        state = "closed" if self._encoder is None else "open"
        return f"<EncoderBatcher {state}, {len(self._waiting)} requests>"

    async def run(self, inputs: Sequence[EncoderInput], reduce: Reduce) -> list[Sequence[Vector]]:
        """Return the reduced rows of each input.

        Args:
            inputs: Each with a number of tokens from 1 to the model's limit.
            reduce: Called with the hidden states `[tokens, hidden]` of each input, or with its
                logits `[labels]`.

        Raises:
            EngineClosedError: If the batcher was closed before all inputs were computed.
            RequestFailedError: If the encoder failed, or a result is not finite.
        """
        await checkpoint()
        request = _Request(inputs, reduce)
        self._waiting.append(request)
        try:
            while request.num_pending:
                async with self._batch_lock:
                    if request.num_pending:
                        await self._run_batch()
        finally:
            if request in self._waiting:
                self._waiting.remove(request)

        if not request.is_finite:
            raise RequestFailedError("the encoder's outputs are not finite")

        return [result for result in request.results if result is not None]

    def close(self) -> None:
        """Release the encoder; waiting callers get `EngineClosedError`. Thread-safe."""
        self._encoder = None

    async def _run_batch(self) -> None:
        encoder = self._encoder
        if encoder is None:
            raise EngineClosedError

        rows = self._next_batch()
        start = time.perf_counter()
        try:
            results = await run_to_end(lambda: self._forward(encoder, rows), self._thread_limiter)
        except BaseException as error:
            for row in reversed(rows):
                row.request.queue.appendleft(row.position)
            if not isinstance(error, Exception) or isinstance(error, AiomlcError):
                raise

            raise RequestFailedError(f"the encoder failed: {error}") from error

        self.seconds += time.perf_counter() - start
        self.num_batches += 1
        for row, result in zip(rows, results, strict=True):
            self.num_tokens += len(row.input.ids)
            row.request.results[row.position] = result
            row.request.num_pending -= 1

    def _next_batch(self) -> list[_Row]:
        """Return the inputs of the next batch: round-robin over requests, up to the budget."""
        rows: list[_Row] = []
        budget = self._batch_tokens
        num_skipped = 0  # Consecutive requests whose queue was empty.
        while num_skipped < len(self._waiting):
            request = self._waiting[0]
            if request.queue:
                budget -= len(request.inputs[request.queue[0]].ids)
                if rows and budget < 0:
                    break

                rows.append(_Row(request, request.queue.popleft()))
                num_skipped = 0
            else:
                num_skipped += 1

            self._waiting.rotate(-1)

        return rows

    def _forward(self, encoder: Encoder, rows: Sequence[_Row]) -> list[Sequence[Vector]]:
        outputs = encoder.forward([row.input for row in rows])
        parts: Iterable[Vector] = outputs
        if self._rows_per_token:
            ends = np.cumsum([len(row.input.ids) for row in rows])[:-1]
            parts = np.split(outputs, ends)
        return [_reduced(row.request, part) for row, part in zip(rows, parts, strict=True)]


def _reduced(request: _Request, part: Vector) -> Sequence[Vector]:
    """Return the results of an input, and note if one is not finite."""
    result = request.reduce(part)
    if not all(np.isfinite(each).all() for each in result):
        request.is_finite = False
    return result
