"""Batched embedding: the inputs of concurrent requests share forward passes of the encoder.

There is no batching task. A caller that finds the encoder idle runs it on the inputs of all
waiting callers, up to the token budget. A cancelled caller withdraws only its inputs.
"""

from __future__ import annotations

__all__ = ("Embedder",)

import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, final

from anyio import CapacityLimiter, Lock, to_thread
from anyio.lowlevel import checkpoint

from aiomlc.errors import AiomlcError, EngineClosedError, RequestFailedError
from aiomlc.runtime.embedding.encoder_tokenizer import EncoderTokenizer
from aiomlc.runtime.embedding.pooling import Pooling, is_finite, pool
from aiomlc.runtime.native.encoder import Encoder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class _Request:
    """The inputs of one caller, and the vectors computed so far."""

    def __init__(self, inputs: Sequence[Sequence[int]], pooling: Pooling) -> None:
        self.inputs = inputs
        self.pooling: Pooling = pooling
        self.vectors: list[NDArray[np.float32] | None] = [None] * len(inputs)
        self.queue = deque(range(len(inputs)))  # Indices of inputs that are in no batch yet.
        self.num_pending = len(inputs)  # Inputs without a vector.


class _Row(NamedTuple):
    """One input of a batch."""

    request: _Request
    position: int  # In `request.inputs`.


@final
class Embedder:
    """One encoder shared by concurrent callers. It belongs to one event loop.

    Args:
        encoder: The encoder, which runs in a worker thread, one batch at a time.
        vocab_size: The exclusive upper bound of token ids.
        batch_tokens: The maximum number of tokens of a forward pass; a longer input runs alone.
    """

    def __init__(  # noqa: PLR0913 - only the loader calls it.
        self,
        encoder: Encoder,
        tokenizer: EncoderTokenizer,
        *,
        model_name: str,
        max_tokens: int,
        vocab_size: int,
        hidden_size: int,
        pooling: Pooling = "mean",
        normalize: bool = True,
        batch_tokens: int = 2048,
    ) -> None:
        self.tokenizer = tokenizer
        self.model_name = model_name
        self.max_tokens = max_tokens
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.pooling: Pooling = pooling
        self.normalize = normalize
        self.num_tokens: int = 0  #: Tokens embedded so far.
        self.num_batches: int = 0
        self.seconds: float = 0.0  #: The total time of forward passes.
        self._encoder: Encoder | None = encoder
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
        return f"<Embedder {self.model_name!r} {state}, {len(self._waiting)} requests>"

    async def embed(
        self, inputs: Sequence[Sequence[int]], pooling: Pooling
    ) -> list[NDArray[np.float32]]:
        """Return the pooled vector of each input: float32 `[hidden]`, not normalized.

        Args:
            inputs: The token ids of each input: 1 to `max_tokens` ids less than `vocab_size`.

        Raises:
            EngineClosedError: If the embedder was closed before all inputs were embedded.
            RequestFailedError: If the encoder failed, or a vector is not finite.
        """
        await checkpoint()
        request = _Request(inputs, pooling)
        self._waiting.append(request)
        try:
            while request.num_pending:
                async with self._batch_lock:
                    if request.num_pending:
                        await self._run_batch()
        finally:
            if request in self._waiting:
                self._waiting.remove(request)

        vectors = [vector for vector in request.vectors if vector is not None]
        if not all(map(is_finite, vectors)):
            raise RequestFailedError("the encoder's hidden states are not finite")

        return vectors

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
            vectors = await to_thread.run_sync(
                _forward, encoder, rows, limiter=self._thread_limiter
            )
        except BaseException as error:
            for row in reversed(rows):
                row.request.queue.appendleft(row.position)
            if not isinstance(error, Exception) or isinstance(error, AiomlcError):
                raise

            raise RequestFailedError(f"the encoder failed: {error}") from error

        self.seconds += time.perf_counter() - start
        self.num_batches += 1
        for row, vector in zip(rows, vectors, strict=True):
            self.num_tokens += len(row.request.inputs[row.position])
            row.request.vectors[row.position] = vector
            row.request.num_pending -= 1

    def _next_batch(self) -> list[_Row]:
        """Return the inputs of the next batch: round-robin over requests, up to the budget."""
        rows: list[_Row] = []
        budget = self._batch_tokens
        num_skipped = 0  # Consecutive requests whose queue was empty.
        while num_skipped < len(self._waiting):
            request = self._waiting[0]
            if request.queue:
                budget -= len(request.inputs[request.queue[0]])
                if rows and budget < 0:
                    break

                rows.append(_Row(request, request.queue.popleft()))
                num_skipped = 0
            else:
                num_skipped += 1

            self._waiting.rotate(-1)

        return rows


def _forward(encoder: Encoder, rows: Sequence[_Row]) -> list[NDArray[np.float32]]:
    inputs = [row.request.inputs[row.position] for row in rows]
    states = encoder.forward(inputs)
    vectors = []
    start = 0
    for token_ids, row in zip(inputs, rows, strict=True):
        vectors.append(pool(states[start : start + len(token_ids)], row.request.pooling))
        start += len(token_ids)

    return vectors
