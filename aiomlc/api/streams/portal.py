"""The way from blocking code to an engine: a portal to the thread of an event loop."""

from __future__ import annotations

__all__ = ("BlockingStream", "EnginePortal", "open_portal")

import atexit
import threading
import weakref
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import CancelledError, Future
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, suppress
from functools import partial
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, final

from anyio import CancelScope
from anyio.from_thread import BlockingPortal, start_blocking_portal

from aiomlc.api.streams.chunk_stream import ChunkStream
from aiomlc.errors import EngineClosedError, EngineDeadError, EngineError
from aiomlc.runtime.concurrency.process_lifecycle import FORKED_MESSAGE, invalidate_after_fork, leak

_T = TypeVar("_T")


@final
class BlockingStream(Generic[_T]):
    """The chunks of one request, for one thread. Leaving it early cancels the request."""

    def __init__(self, stream: ChunkStream[Any, _T], portal: EnginePortal) -> None:
        self._stream = stream
        self._portal = portal
        self._ready: deque[_T] = deque()

    @property
    def request_id(self) -> str:
        """The id of every chunk, and what `abort` takes."""
        return self._stream.request_id

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> _T:
        if not self._ready:
            self._ready.extend(self.receive_batch())

        if not self._ready:
            raise StopIteration

        return self._ready.popleft()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Cancel what is unfinished."""
        self._ready.clear()
        self._portal.call_if_open(self._stream.aclose)

    def receive_batch(self) -> list[_T]:
        """Wait for a chunk, and take all that are there; an empty list is the end."""
        # A trip through the portal costs as much as many chunks, so it fetches all there are.
        try:
            return self._portal.call(self._stream.receive_batch)
        except KeyboardInterrupt:
            self.close()
            raise


@asynccontextmanager
async def open_portal() -> AsyncIterator[BlockingPortal]:
    """A portal to the running event loop. Calls that are not done at its end are cancelled."""
    raised: BaseException | None = None
    async with BlockingPortal() as portal:
        try:
            yield portal
        except BaseException as error:  # noqa: BLE001 - raised again where no group wraps it.
            raised = error
        finally:
            await portal.stop(cancel_remaining=True)

    if raised is not None:
        raise raised


@final
class EnginePortal:
    """The event loop's thread that hosts one engine."""

    def __init__(self, engine: AbstractAsyncContextManager[object]) -> None:
        self._closing = threading.Lock()
        with ExitStack() as stack:
            self._portal: BlockingPortal = stack.enter_context(
                start_blocking_portal(name="aiomlc engine")
            )
            stack.enter_context(self._portal.wrap_async_context_manager(engine))
            self._thread_id = self._portal.call(threading.get_ident)
            self._stack: ExitStack | None = stack.pop_all()

        # For a program that forgets `terminate`: no native loop may outlive the interpreter.
        self._exit_hook = partial(_close_if_alive, weakref.ref(self))
        atexit.register(self._exit_hook)
        self._is_inherited = False
        invalidate_after_fork(self)

    def call(self, function: Callable[..., Awaitable[_T]], *args: object) -> _T:
        """Run a function in the engine's thread. An interrupted caller cancels it.

        Raises:
            EngineClosedError: the engine was terminated, or is another process's.
            EngineError: this is the engine's thread, which cannot wait for itself.
        """
        call = _Call(partial(function, *args))
        try:
            return self._start(call).result()
        except CancelledError as error:
            raise EngineClosedError("the engine was terminated") from error
        except KeyboardInterrupt:
            with suppress(RuntimeError):  # The portal is closed, and its tasks with it.
                self._portal.call(call.cancel)

            raise

    def _start(self, call: _Call[_T]) -> Future[_T]:
        if self._is_inherited:
            raise EngineClosedError(FORKED_MESSAGE)

        if self.runs_here():
            raise EngineError("the engine's own thread cannot wait for the engine")

        try:
            return self._portal.start_task_soon(call.run)
        except RuntimeError as error:
            raise EngineClosedError("the engine was terminated") from error

    def call_if_open(self, function: Callable[[], Awaitable[object]]) -> None:
        """Run a function that has nothing to do once the engine is closed."""
        with suppress(EngineClosedError):
            self.call(function)

    def close(self) -> None:
        """Leave the engine's scope and end its thread. The second caller waits for the first."""
        with self._closing:
            stack, self._stack = self._stack, None
            if stack is not None:
                atexit.unregister(self._exit_hook)
                stack.close()

    def abandon(self) -> None:
        """Be closed, in a process that has none of the engine's threads."""
        self._is_inherited = True
        self._closing = threading.Lock()  # The other one may be held by a thread that is not here.
        leak(self._stack)  # What is in it would wait for the event loop when it is freed.
        self._stack = None

    def runs_here(self) -> bool:
        """Whether the calling thread is the engine's."""
        return self._thread_id == threading.get_ident()

    def close_at_exit(self) -> None:
        """Close when the interpreter ends, for a caller that must not wait for this thread."""
        atexit.register(self.close_quietly)

    def close_quietly(self) -> None:
        """Close where nobody could take the engine's own failure."""
        with suppress(EngineDeadError):
            self.close()


@final
class _Call(Generic[_T]):
    """A function in the engine's thread; an interrupt may come before its future is there."""

    def __init__(self, function: Callable[[], Awaitable[_T]]) -> None:
        self._function = function
        self._scope: CancelScope | None = None
        self._is_cancelled = False

    async def run(self) -> _T:
        with CancelScope() as self._scope:
            if not self._is_cancelled:
                return await self._function()

        raise EngineClosedError("the caller was interrupted")

    def cancel(self) -> None:
        """End the call. In the engine's thread."""
        self._is_cancelled = True
        if self._scope is not None:
            self._scope.cancel()


def _close_if_alive(reference: weakref.ref[EnginePortal]) -> None:
    portal = reference()
    if portal is not None:
        portal.close_quietly()
