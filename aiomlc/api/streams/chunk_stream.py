"""What every stream of chunks does, whatever its chunks are."""

from __future__ import annotations

__all__ = (
    "AlreadyDone",
    "ChunkStream",
)

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Generator, Iterable
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, final

from anyio.lowlevel import checkpoint

_Delta = TypeVar("_Delta")
_Chunk = TypeVar("_Chunk")


class ChunkStream(ABC, Generic[_Delta, _Chunk]):
    """The chunks of one request. Leaving it early, in any way, cancels the request.

    An async iterator for one task, and an async context manager; it works with
    `contextlib.aclosing`. When the reader is slow, the chunks it missed come merged as one.
    """

    def __init__(self, request_id: str, owner: object) -> None:
        self.request_id = request_id  #: The id of every chunk, and what `abort` takes.
        self._owner = owner  # The engine serves as long as somebody reads.
        self._ready: deque[_Chunk] = deque()

    @abstractmethod
    def _next_delta(self) -> Awaitable[_Delta]:
        """Wait for the next delta; raises StopAsyncIteration at the end."""

    @abstractmethod
    def _chunks(self, delta: _Delta) -> Iterable[_Chunk]:
        """The chunks of a delta, perhaps none."""

    @abstractmethod
    def _cancel(self) -> None:
        """Cancel what is unfinished. Never blocks."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> _Chunk:
        ready = self._ready
        if ready:
            await checkpoint()

        while not ready:
            ready.extend(self._chunks(await self._next_delta()))

        return ready.popleft()

    async def receive_batch(self) -> list[_Chunk]:
        """Wait for a chunk, and take all that are there; an empty list is the end."""
        try:
            batch = [await self.__anext__()]
        except StopAsyncIteration:
            return []

        batch.extend(self._ready)
        self._ready.clear()
        return batch

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    async def aclose(self) -> None:
        """Close the stream."""
        self.close()
        await checkpoint()

    def close(self) -> AlreadyDone:
        """Cancel what is unfinished. Never blocks, so it is safe in a cancelled scope.

        The call does it; what it returns may be awaited, as OpenAI's client has it.
        """
        self._ready.clear()
        self._cancel()
        return AlreadyDone()


@final
class AlreadyDone:
    """Nothing to wait for; awaiting it is a checkpoint."""

    def __await__(self) -> Generator[Any, Any, None]:
        return checkpoint().__await__()
