"""Texts of concurrent requests become vectors, many in one forward pass.

There is no task that gathers: whoever finds the encoder idle runs it for all who wait, as far as
the budget goes. A caller that leaves takes its own texts along and nobody else's.
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
from aiomlc.runtime.embedding.pooling import Pooling, pool
from aiomlc.runtime.native.encoder import Encoder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class _Request:
    """The texts of one caller, and the vectors of those that are done."""

    def __init__(self, texts: Sequence[Sequence[int]], pooling: Pooling) -> None:
        self.texts = texts
        self.pooling = pooling
        self.vectors: list[NDArray[np.float32] | None] = [None] * len(texts)
        self.todo = deque(range(len(texts)))
        self.left = len(texts)


class _Row(NamedTuple):
    request: _Request
    place: int


@final
class Embedder:
    """One encoder for concurrent callers. It belongs to one event loop.

    Args:
        encoder: Runs in a worker thread, one batch at a time.
        tokenizer: Turns texts into ids.
        model_name: What answers call the model.
        max_tokens: Of one text.
        vocab_size: Token ids are below this.
        hidden_size: Elements of a vector.
        pooling: The model's own.
        batch_tokens: Tokens of one forward pass; a longer text runs alone.
    """

    def __init__(  # noqa: PLR0913 - each is said once, by the loader.
        self,
        encoder: Encoder,
        tokenizer: EncoderTokenizer,
        *,
        model_name: str,
        max_tokens: int,
        vocab_size: int,
        hidden_size: int,
        pooling: Pooling = "mean",
        batch_tokens: int = 2048,
    ) -> None:
        self.tokenizer = tokenizer
        self.model_name = model_name
        self.max_tokens = max_tokens
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.pooling = pooling
        self.num_tokens: int = 0  #: Embedded so far.
        self.num_batches: int = 0
        self.seconds: float = 0.0  #: That the encoder ran.
        self._encoder: Encoder | None = encoder
        self._batch_tokens = batch_tokens
        self._waiting: deque[_Request] = deque()
        self._turn = Lock()
        self._thread = CapacityLimiter(1)

    @property
    def num_waiting(self) -> int:
        """Requests that have texts which are not done."""
        return len(self._waiting)

    def __repr__(self) -> str:
        state = "closed" if self._encoder is None else "open"
        return f"<Embedder {self.model_name!r} {state}, {len(self._waiting)} requests>"

    async def embed(
        self, texts: Sequence[Sequence[int]], pooling: Pooling
    ) -> list[NDArray[np.float32]]:
        """The pooled vector of each text, float32 `[hidden]`, not normalised.

        Args:
            texts: Token ids in range, 1 to `max_tokens` for each text.
            pooling: How the tokens' vectors become one.

        Raises:
            EngineClosedError: the embedder was closed before all texts were done.
            RequestFailedError: the encoder failed.
        """
        await checkpoint()
        request = _Request(texts, pooling)
        self._waiting.append(request)
        try:
            while request.left:
                async with self._turn:
                    if request.left:
                        await self._run_batch()
        finally:
            if request in self._waiting:
                self._waiting.remove(request)

        return [vector for vector in request.vectors if vector is not None]

    def close(self) -> None:
        """Give the encoder up; callers that wait get `EngineClosedError`. From any thread."""
        self._encoder = None

    async def _run_batch(self) -> None:
        encoder = self._encoder
        if encoder is None:
            raise EngineClosedError("the engine was terminated")

        rows = self._take()
        began = time.perf_counter()
        try:
            vectors = await to_thread.run_sync(_forward, encoder, rows, limiter=self._thread)
        except BaseException as error:
            for row in reversed(rows):
                row.request.todo.appendleft(row.place)
            if not isinstance(error, Exception) or isinstance(error, AiomlcError):
                raise

            raise RequestFailedError(f"the encoder failed: {error}") from error

        self.seconds += time.perf_counter() - began
        self.num_batches += 1
        for row, vector in zip(rows, vectors, strict=True):
            self.num_tokens += len(row.request.texts[row.place])
            row.request.vectors[row.place] = vector
            row.request.left -= 1

    def _take(self) -> list[_Row]:
        """The next texts, one of each request in turn, as many as the budget allows."""
        rows: list[_Row] = []
        room = self._batch_tokens
        idle = 0  # Requests in a row that had nothing to give.
        while idle < len(self._waiting):
            request = self._waiting[0]
            if request.todo:
                room -= len(request.texts[request.todo[0]])
                if rows and room < 0:
                    break

                rows.append(_Row(request, request.todo.popleft()))
                idle = 0
            else:
                idle += 1

            self._waiting.rotate(-1)

        return rows


def _forward(encoder: Encoder, rows: Sequence[_Row]) -> list[NDArray[np.float32]]:
    texts = [row.request.texts[row.place] for row in rows]
    states = encoder.forward(texts)
    vectors = []
    begin = 0
    for text, row in zip(texts, rows, strict=True):
        vectors.append(pool(states[begin : begin + len(text)], row.request.pooling))
        begin += len(text)

    return vectors
