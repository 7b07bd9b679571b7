"""The base class of all asynchronous streams: anyio's `ObjectReceiveStream`."""

from __future__ import annotations

__all__ = ("ReceiveStream",)

from abc import abstractmethod
from typing import Self, TypeVar

from anyio import ClosedResourceError, EndOfStream
from anyio.abc import ObjectReceiveStream
from anyio.lowlevel import checkpoint

from aiomlc.runtime.concurrency.misuse import AsyncIterationOnly

T_co = TypeVar("T_co", covariant=True)


class ReceiveStream(AsyncIterationOnly, ObjectReceiveStream[T_co]):
    """A stream of objects for one task: async iterator, async context manager and anyio stream.

    `async for` over a closed stream ends at once; `receive` raises ClosedResourceError.
    """

    _is_closed = False

    def __aiter__(self) -> Self:
        return self

    # `receive` calls this, not this `receive`: iteration runs once per token and must be fast.
    @abstractmethod
    async def __anext__(self) -> T_co: ...

    async def receive(self) -> T_co:
        """Wait for the next object.

        Raises:
            anyio.EndOfStream: If there is none.
            anyio.ClosedResourceError: If the stream was closed, also while this call waits.
            anyio.BusyResourceError: If another task is waiting for an object.
            AiomlcError: As iteration.
        """
        try:
            return await self.__anext__()
        except StopAsyncIteration:
            raise (ClosedResourceError if self._is_closed else EndOfStream) from None

    @abstractmethod
    def close(self) -> object:
        """Close the stream. Never blocks, so it is safe in a cancelled scope."""

    async def aclose(self) -> None:
        """Close the stream, as `close` does."""
        self.close()
        await checkpoint()

    async def __aexit__(self, *exc_info: object) -> None:
        self.close()
