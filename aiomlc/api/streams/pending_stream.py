"""A stream that is opened when it is first used: by `await`, `async for` or `async with`."""

from __future__ import annotations

__all__ = ("PendingStream",)

from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, Generic, Self, TypeVar, TypeVarTuple, final

from anyio import BusyResourceError, ClosedResourceError
from anyio.lowlevel import checkpoint

from aiomlc.api.streams.chunk_stream import IS_A_STREAM
from aiomlc.runtime.concurrency.misuse import AsyncIterationOnly, explains
from aiomlc.runtime.concurrency.receive_stream import ReceiveStream

_Stream = TypeVar("_Stream", bound=ReceiveStream[Any])
_Item = TypeVar("_Item")
_Arguments = TypeVarTuple("_Arguments")


@explains(choices=IS_A_STREAM, usage=IS_A_STREAM)
@final
class PendingStream(AsyncIterationOnly, Coroutine[Any, Any, _Stream], Generic[_Stream, _Item]):
    """A streamed request that is submitted when the stream is first used:

        stream = await engine.chat.completions.create(messages=[...], stream=True)

        async with engine.chat.completions.create(messages=[...], stream=True) as stream:
            ...

        async for chunk in engine.chat.completions.create(messages=[...], stream=True):
            ...

    Each use gives the same stream, whose request is cancelled when it is closed or garbage
    collected. If this object is never used, no request is submitted. It is a coroutine, so it can
    be run as a task. It opens once: after an error or a cancellation, it is closed.

    Raises:
        AiomlcError: On the first use, if the request is rejected.
        anyio.BusyResourceError: If another task is opening the stream.
        anyio.ClosedResourceError: If it was closed before it was open, or could not be opened.
    """

    def __init__(
        self, open_stream: Callable[[*_Arguments], Awaitable[_Stream]], *arguments: *_Arguments
    ) -> None:
        """Prepare to open a stream."""
        self._open_stream: Callable[..., Awaitable[_Stream]] | None = open_stream
        self._arguments: tuple[Any, ...] = arguments
        self._stream: _Stream | None = None
        self._is_opening = False
        self._is_closed = False
        self._opening: Coroutine[Any, Any, _Stream] | None = None  # Driven by `send`.

    def __repr__(self) -> str:
        state = "pending" if self._open_stream is not None else "closed"
        return f"<PendingStream {state if self._stream is None else self._stream}>"

    def __await__(self) -> Generator[Any, Any, _Stream]:
        return self._open().__await__()

    async def _open(self) -> _Stream:
        if self._stream is not None:
            await checkpoint()
            return self._stream

        if self._is_opening:
            raise BusyResourceError("opening")

        open_stream, self._open_stream = self._open_stream, None
        arguments, self._arguments = self._arguments, ()
        if open_stream is None:
            raise ClosedResourceError

        self._is_opening = True
        try:
            stream = await open_stream(*arguments)
        finally:
            self._is_opening = False

        if self._is_closed:  # By another task, while this one waited.
            stream.close()
            raise ClosedResourceError

        self._stream = stream
        return stream

    def __aiter__(self) -> Self:
        return self

    def __anext__(self) -> Awaitable[_Item]:
        # Not a coroutine function: a token costs one call more than with the stream itself.
        return self._first_item() if self._stream is None else self._stream.__anext__()

    async def _first_item(self) -> _Item:
        item: _Item = await (await self._open()).__anext__()
        return item

    async def __aenter__(self) -> _Stream:
        return await self._open()

    async def __aexit__(self, *exc_info: object) -> None:
        self.close()

    async def aclose(self) -> None:
        """Close the stream, as `close` does."""
        self.close()
        await checkpoint()

    def close(self) -> None:
        """Close the stream and cancel its request, or never submit it. Never blocks."""
        self._is_closed = True
        self._open_stream, self._arguments = None, ()
        if self._opening is not None:
            self._opening.close()

        if self._stream is not None:
            self._stream.close()

    # ---- Coroutine, for `asyncio.create_task` and the like ----

    def send(self, value: Any) -> Any:  # noqa: ANN401
        """Start or continue opening the stream."""
        return self._coroutine().send(value)

    def throw(self, *exc_info: Any) -> Any:  # noqa: ANN401
        """Raise an exception where the opening of the stream waits."""
        return self._coroutine().throw(*exc_info)

    def _coroutine(self) -> Coroutine[Any, Any, _Stream]:
        if self._opening is None:
            self._opening = self._open()

        return self._opening
