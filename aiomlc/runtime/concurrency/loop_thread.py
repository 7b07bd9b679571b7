"""A thread with an event loop, which runs an async context manager and calls of other threads.

The calling threads may be interrupted by a KeyboardInterrupt at any moment. Such a thread can leave
a lock of `concurrent.futures` or `threading` locked, so the two sides share no such lock: the event
loop's thread never waits, and a caller waits for a lock of its own.
"""

from __future__ import annotations

__all__ = ("Call", "LoopThread")

import threading
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar, cast, final

from anyio import CancelScope, Event, create_task_group
from anyio.abc import TaskGroup
from anyio.from_thread import BlockingPortal, start_blocking_portal
from anyio.lowlevel import EventLoopToken, current_token

from aiomlc.errors import EngineClosedError
from aiomlc.runtime.concurrency.event_loop import run_soon
from aiomlc.runtime.concurrency.interrupts import deferred_interrupts
from aiomlc.runtime.concurrency.process_lifecycle import leak, unleak
from aiomlc.validation.shortages import shortage_errors

_T = TypeVar("_T")


@final
class _Latch:
    """An event that one thread sets, without waiting, and others wait for."""

    def __init__(self) -> None:
        self._is_set = False
        self._waiting: deque[threading.Lock] = deque()

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        while self._waiting:
            self._waiting.popleft().release()

    def wait(self) -> None:
        lock = threading.Lock()
        lock.acquire()
        self._waiting.append(lock)
        if not self._is_set:  # Read after the lock was added, since `set` does it in reverse.
            lock.acquire()


@final
class Call(Generic[_T]):
    """A call of an async function in the thread of an event loop.

    Args:
        discard: Called with the result if the caller was interrupted before it had the result.
    """

    def __init__(
        self, function: Callable[[], Awaitable[_T]], discard: Callable[[_T], object] | None = None
    ) -> None:
        self._function = function
        self._discard = discard
        self._scope: CancelScope | None = None
        self._is_cancelled = False
        self._result: _T | None = None
        self._has_result = False  # Until the caller takes it.
        self._error: BaseException | None = None
        self._has_ended = _Latch()

    def __del__(self) -> None:
        if hasattr(self, "_has_result"):  # Else an interrupt ended the constructor.
            self._drop_result()

    async def run(self) -> None:
        """Call the function."""
        try:
            with CancelScope() as self._scope:
                if not self._is_cancelled:
                    self._result = await self._function()
                    self._has_result = True
        except Exception as error:  # noqa: BLE001 - raised in the calling thread.
            self._error = error
        finally:
            self._has_ended.set()
            if self._is_cancelled:
                self._drop_result()

    def reject(self) -> None:
        """End the call, which was not started."""
        self._has_ended.set()

    def cancel(self) -> None:
        """Cancel the call. Must run in the event loop's thread."""
        self._is_cancelled = True
        self._drop_result()
        if self._scope is not None:
            self._scope.cancel()

    def result(self) -> _T:
        """Wait for the result and return it; return it once only.

        Raises:
            EngineClosedError: If the call was not started or was cancelled.
            Exception: What the function raises.
        """
        self._has_ended.wait()
        error, self._error = self._error, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # Its traceback refers to this frame.

        if not self._has_result:
            raise EngineClosedError

        result = cast("_T", self._result)
        # The last operation, after which Python does not check for interrupts until the return.
        self._has_result = False
        return result

    def _drop_result(self) -> None:
        if self._has_result:
            self._has_result = False
            result, self._result = self._result, None
            if self._discard is not None:
                self._discard(cast("_T", result))


class _Loop(NamedTuple):
    """The event loop of a thread, with its scope and tasks."""

    token: EventLoopToken
    stopped: Event
    entering: CancelScope
    calls: TaskGroup


@final
class LoopThread:
    """A thread with an event loop inside a scope. Its methods are for other threads."""

    def __init__(self, scope: AbstractAsyncContextManager[object]) -> None:
        self._scope = scope
        self._thread_id: int | None = None
        self._join_thread: Callable[[], None] | None = None
        self._loop: _Loop | None = None
        self._is_stopping = False
        self._unstarted: dict[Call[Any], None] = {}
        self._has_entered = _Latch()
        self._has_ended = _Latch()
        self._failure: BaseException | None = None
        self._portal_scope = start_blocking_portal(name="aiomlc engine")
        self._leaked: list[AbstractContextManager[BlockingPortal]] = []

    def start(self) -> None:
        """Start the thread and wait until it is inside the scope.

        If this call is interrupted, the scope is left and the thread ends.

        Raises:
            EngineError: If the thread cannot be started.
            Exception: What entering the scope raises; the thread has ended.
        """
        try:
            with deferred_interrupts(), shortage_errors():
                portal = self._portal_scope.__enter__()
                leak(self._portal_scope)  # Its end would wait for the thread, possibly in itself.
                self._leaked.append(self._portal_scope)
                thread = portal.call(threading.current_thread)
                self._thread_id, self._join_thread = thread.ident, thread.join
                portal.start_task_soon(self._run, portal)

            self._has_entered.wait()
        except BaseException:
            self.stop()
            raise

        if self._failure is not None:
            self.stop()
            self.join()

    def submit(self, call: Call[_T]) -> None:
        """Start a call; reject it if the thread stops."""
        self._unstarted[call] = None
        self._run_soon(partial(self._start_call, call))
        if self._has_ended.is_set():
            self._reject_calls()

    def cancel(self, call: Call[_T]) -> None:
        """Cancel a call."""
        self._run_soon(lambda _: call.cancel())

    def stop(self) -> None:
        """Leave the scope and end the thread, without waiting. Idempotent."""
        self._is_stopping = True
        self._run_soon(self._stop)

    def join(self) -> None:
        """Wait until the thread has ended.

        Raises:
            Exception: What the scope raised; raised once.
        """
        if self._join_thread is not None:
            self._has_ended.wait()
            self._join_thread()
            self._unleak()

        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def runs_here(self) -> bool:
        """Return whether the calling thread is this one."""
        return threading.get_ident() == self._thread_id

    def _unleak(self) -> None:
        scopes, self._leaked = self._leaked, []
        for scope in scopes:
            unleak(scope)
            scope.__exit__(None, None, None)  # Now, since it cannot be left at exit.

    # ---- In the event loop's thread ----

    async def _run(self, portal: BlockingPortal) -> None:
        try:
            async with create_task_group() as calls:
                self._loop = _Loop(current_token(), Event(), CancelScope(), calls)
                if (
                    not self._is_stopping
                ):  # Read after `_loop` was set, since `stop` does it in reverse.
                    await self._serve(self._loop)
        finally:
            await portal.stop()
            self._has_ended.set()
            self._has_entered.set()
            self._reject_calls()

    async def _serve(self, loop: _Loop) -> None:
        try:
            with loop.entering:
                async with self._scope:
                    self._has_entered.set()
                    await loop.stopped.wait()
        except (Exception, SystemExit, KeyboardInterrupt) as error:  # noqa: BLE001 - raised by `join`.
            self._failure = error

        # Calls of an engine that has failed raise its error.
        self._has_entered.set()
        await loop.stopped.wait()

    def _stop(self, loop: _Loop) -> None:
        loop.stopped.set()
        if not self._has_entered.is_set():
            loop.entering.cancel()

    def _start_call(self, call: Call[Any], loop: _Loop) -> None:
        if self._unstarted.pop(call, call) is not None:
            return  # It was rejected.

        if self._is_stopping:
            call.reject()
        else:
            loop.calls.start_soon(call.run)

    # ---- Both ----

    def _reject_calls(self) -> None:
        for call in list(self._unstarted):
            call.reject()

        self._unstarted.clear()

    def _run_soon(self, function: Callable[[_Loop], object]) -> None:
        if self._loop is not None:
            run_soon(self._loop.token, partial(function, self._loop))
