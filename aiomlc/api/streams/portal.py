"""Access to an async engine from blocking code, through a thread that runs an event loop."""

from __future__ import annotations

__all__ = ("STEPPING_MESSAGE", "BlockingStream", "EnginePortal", "open_portal")

import atexit
import weakref
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from typing import Any, Final, Generic, Self, TypeVar, final

from anyio.from_thread import BlockingPortal

from aiomlc.api.streams.chunk_stream import IS_A_STREAM, ChunkStream
from aiomlc.api.streams.visible_names import hides
from aiomlc.errors import AiomlcError, EngineClosedError, EngineDeadError, EngineError
from aiomlc.runtime.concurrency.loop_thread import Call, LoopThread
from aiomlc.runtime.concurrency.misuse import IterationOnly, explains
from aiomlc.runtime.concurrency.process_lifecycle import FORKED_MESSAGE, invalidate_after_fork
from aiomlc.validation.tracebacks import keep_own_frames

STEPPING_MESSAGE: Final = (
    "a logits processor cannot wait for its engine, which waits for it: make the call in another "
    "thread, and do not wait for the result"
)
_OWN_THREAD_MESSAGE: Final = "the engine's thread cannot wait for the engine"
_T = TypeVar("_T")


@explains(choices=IS_A_STREAM, usage=IS_A_STREAM, text=IS_A_STREAM)
@hides("receive_batch")
@final
class BlockingStream(IterationOnly, Generic[_T]):
    """The chunks of one request for blocking code, as an iterator and a context manager.

    For use by one thread. Yields and raises what the wrapped `ChunkStream` yields and raises.
    Leaving the scope and `close` end the stream, and cancel the request if it is still running;
    so does a KeyboardInterrupt during iteration.
    """

    def __init__(self, stream: ChunkStream[Any, _T], portal: EnginePortal) -> None:
        self._stream = stream
        self._portal = portal
        self._ready: deque[_T] = deque()

    @property
    def request_id(self) -> str:
        """The id of every chunk, and the argument of `abort`."""
        return self._stream.request_id

    def __repr__(self) -> str:
        return f"<BlockingStream of {self._stream!r}>"

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

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the stream and cancel the request unless it has finished."""
        self._ready.clear()
        self._portal.call_if_open(self._stream.aclose)

    def receive_batch(self) -> list[_T]:
        """Wait for a chunk and return all that are ready; an empty list means the end.

        Raises:
            AiomlcError: As iteration.
        """
        # A call through the portal costs as much as many chunks, so fetch all that are ready.
        try:
            return self._portal.call(self._stream.receive_batch)
        except KeyboardInterrupt:
            self.close()
            raise


@asynccontextmanager
async def open_portal() -> AsyncIterator[BlockingPortal]:
    """Open a portal to the running event loop; leaving the scope cancels its unfinished calls."""
    body_error: BaseException | None = None
    async with BlockingPortal() as portal:
        try:
            yield portal
        except BaseException as error:  # noqa: BLE001 - raised below, outside the task group.
            body_error = error
        finally:
            await portal.stop(cancel_remaining=True)

    # Raised here so that the portal's task group does not wrap the error in an exception group.
    if body_error is not None:
        raise body_error


@final
class EnginePortal:
    """A thread with an event loop that runs one engine.

    The engine lives as long as its portal, to which everything refers that makes requests: the
    engine object, its resources and its streams. Dropping the last reference ends the engine.

    Args:
        engine: The engine, whose scope is entered in the thread.
    """

    def __init__(
        self,
        engine: AbstractAsyncContextManager[object],
        is_stepping_here: Callable[[], bool] = lambda: False,
    ) -> None:
        self._is_stepping_here = is_stepping_here
        self._is_inherited = False
        self._is_open = False
        self._thread = LoopThread(engine)
        try:
            self._thread.start()
        except AiomlcError as error:
            raise keep_own_frames(error) from error.__cause__

        self._is_open = True
        # For programs that do not call `terminate`: no native loop may outlive the interpreter.
        self._exit_hook = partial(_close_if_alive, weakref.ref(self))
        atexit.register(self._exit_hook)
        invalidate_after_fork(self)

    def __del__(self) -> None:
        if not getattr(self, "_is_open", False):  # Missing if an interrupt ended the constructor.
            return

        if self.must_not_wait():  # One of the engine's threads dropped the last reference.
            self._thread.stop()
            self.close_at_exit()
        else:
            self.close_quietly()

    def call(
        self,
        function: Callable[..., Awaitable[_T]],
        *args: object,
        discard: Callable[[_T], object] | None = None,
    ) -> _T:
        """Run an async function in the engine's thread and return its result.

        A KeyboardInterrupt in the calling thread cancels the function. If the function had already
        returned, `discard` is called with the result.

        Raises:
            EngineClosedError: If the engine was terminated, or belongs to the parent process.
            EngineError: If called from the engine's thread, or in a logits processor. They cannot
                wait for the engine, which waits for them.
        """
        self._check_may_wait()
        call = Call(partial(function, *args), discard)
        try:
            self._thread.submit(call)
            return call.result()
        except AiomlcError as error:
            raise keep_own_frames(error) from error.__cause__
        except KeyboardInterrupt:
            self._thread.cancel(call)
            raise

    def _check_may_wait(self) -> None:
        if self._is_inherited:
            raise EngineClosedError(FORKED_MESSAGE)

        if self.must_not_wait():
            stepping = self._is_stepping_here()
            raise EngineError(STEPPING_MESSAGE if stepping else _OWN_THREAD_MESSAGE)

    def call_if_open(self, function: Callable[[], Awaitable[object]]) -> None:
        """Run a function in the engine's thread; do nothing if the engine is closed."""
        with suppress(EngineClosedError):
            self.call(function)

    def close(self) -> None:
        """Leave the engine's scope and end its thread.

        Idempotent and thread-safe. If this call is interrupted, the engine ends all the same, and
        the next call waits for it.

        Raises:
            EngineDeadError: If the engine had failed; raised once.
        """
        if self._is_inherited:
            return

        self._thread.stop()
        try:
            self._thread.join()
        except Exception:
            self._is_open = False
            raise

        self._is_open = False  # Else `__del__` would look at the thread, even at exit.
        atexit.unregister(self._exit_hook)

    def abandon(self) -> None:
        """Close the portal in a forked process, which has none of the engine's threads."""
        self._is_inherited = True

    def must_not_wait(self) -> bool:
        """Return whether the engine waits for the calling thread: its own, or the step thread."""
        return self._thread.runs_here() or self._is_stepping_here()

    def close_at_exit(self) -> None:
        """Close when the interpreter exits, for a caller that must not wait for the thread."""
        atexit.register(self.close_quietly)

    def close_quietly(self) -> None:
        """Close and ignore a failure of the engine, where no caller could handle the error."""
        with suppress(EngineDeadError):
            self.close()


def _close_if_alive(reference: weakref.ref[EnginePortal]) -> None:
    portal = reference()
    if portal is not None:
        portal.close_quietly()
