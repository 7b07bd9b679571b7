"""The base class of all asynchronous streams of chunks."""

from __future__ import annotations

__all__ = (
    "IS_A_STREAM",
    "AlreadyDone",
    "ChunkStream",
)

import math
from abc import abstractmethod
from collections import deque
from collections.abc import Awaitable, Generator, Iterable
from typing import Any, Final, Generic, TypeVar, final

from anyio import CancelScope
from anyio.lowlevel import checkpoint
from anyio.streams.memory import MemoryObjectStreamStatistics

from aiomlc.api.streams.visible_names import hides
from aiomlc.runtime.concurrency.misuse import explains
from aiomlc.runtime.concurrency.receive_stream import ReceiveStream
from aiomlc.runtime.concurrency.worker_thread import run_in_worker

IS_A_STREAM: Final = "iterate over the chunks of the stream, or leave out stream=True"
_Delta = TypeVar("_Delta")
_Chunk = TypeVar("_Chunk")


@explains(choices=IS_A_STREAM, usage=IS_A_STREAM)
@hides("has_logprobs", "receive_batch")
class ChunkStream(ReceiveStream[_Chunk], Generic[_Delta, _Chunk]):
    """The chunks of one request: async iterator, async context manager and anyio's receive stream.

    It is for one task. Iteration yields chunks until the request has finished. If the reader is
    slow, the tokens generated in the meantime arrive merged in one chunk. Leaving the scope,
    `close` and `aclose` (also through `contextlib.aclosing`) end the stream, and cancel the request
    if it is still running; so does garbage collection. Iterating a closed stream ends at once;
    `receive` raises ClosedResourceError.

    Raises:
        RequestAbortedError: While iterating, if `abort` ended the request.
        DeadlineExceededError: While iterating, if a time limit of the request has passed.
        LogitsProcessorError: While iterating, if a logits processor raised an exception.
        EngineError: While iterating, if the engine was closed, or failed.
    """

    def __init__(self, request_id: str, owner: object, *, has_logprobs: bool = False) -> None:
        self.request_id = request_id  #: The id of every chunk, and the argument of `abort`.
        #: Whether its chunks have log-probabilities, so that a chunk may be large.
        self.has_logprobs = has_logprobs
        self._owner = owner  # Keeps the engine alive while the stream is in use.
        self._ready: deque[_Chunk] = deque()

    @abstractmethod
    def _next_delta(self) -> Awaitable[_Delta]:
        """Wait for the next delta; raise StopAsyncIteration at the end."""

    @abstractmethod
    def _delta_to_chunks(self, delta: _Delta) -> Iterable[_Chunk]:
        """Return the chunks of a delta; there may be none."""

    def _is_large(self, delta: _Delta) -> bool:
        """Return whether the chunks of a delta take so long that a worker thread makes them."""
        return False

    @abstractmethod
    def _cancel(self) -> None:
        """Cancel the request unless it has finished. Never blocks."""

    @abstractmethod
    def _delta_statistics(self) -> MemoryObjectStreamStatistics:
        """Return the statistics of the stream of deltas."""

    async def __anext__(self) -> _Chunk:
        ready = self._ready
        if ready:
            await checkpoint()

        while not ready:
            delta = await self._next_delta()
            if self.has_logprobs and self._is_large(delta):
                await self._convert_in_worker(delta)
            else:
                ready.extend(self._delta_to_chunks(delta))

        return ready.popleft()

    async def _convert_in_worker(self, delta: _Delta) -> None:
        # Shielded, because a reader may go on after it was cancelled, and nothing is lost.
        with CancelScope(shield=True):
            chunks = await run_in_worker(lambda _: list(self._delta_to_chunks(delta)))
            if not self._is_closed:
                self._ready.extend(chunks)

    async def receive_batch(self) -> list[_Chunk]:
        """Wait for a chunk and return all that are ready; an empty list means the end.

        Raises:
            AiomlcError: As iteration.
        """
        try:
            batch = [await self.__anext__()]
        except StopAsyncIteration:
            return []

        batch.extend(self._ready)
        self._ready.clear()
        return batch

    def statistics(self) -> MemoryObjectStreamStatistics:
        """Return what anyio's memory object streams report.

        The buffer holds unread chunks, and unread deltas that will become chunks. The waiting
        senders are the choices that are paused until their output is read (`max_unread_tokens`);
        the open sender is the engine.
        """
        deltas = self._delta_statistics()
        return deltas._replace(
            current_buffer_used=deltas.current_buffer_used + len(self._ready),
            max_buffer_size=math.inf,
            open_receive_streams=int(not self._is_closed),
        )

    def close(self) -> AlreadyDone:
        """Close the stream and cancel the request unless it has finished.

        Never blocks, so it is safe in a cancelled scope. The call itself closes the stream;
        awaiting the returned value is optional, and allows code written for OpenAI's client.
        """
        self._is_closed = True
        self._ready.clear()
        self._cancel()
        return AlreadyDone()


@final
class AlreadyDone:
    """An awaitable that is already complete; awaiting it is a checkpoint."""

    def __await__(self) -> Generator[Any, Any, None]:
        return checkpoint().__await__()
