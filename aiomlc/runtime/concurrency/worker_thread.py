"""Blocking work of requests in worker threads, which ends with the request."""

from __future__ import annotations

__all__ = ("LoopLimiter", "run_in_worker", "run_to_end")

import threading
from collections.abc import Callable
from typing import TypeVar, final

from anyio import CancelScope, CapacityLimiter, get_cancelled_exc_class, sleep, to_thread
from anyio.lowlevel import RunVar

from aiomlc.validation.shortages import names_shortages

T = TypeVar("T")

# More threads would only compete with the engine for the CPU.
_MAX_THREADS = 4
_POLL_SECONDS = 0.01


@final
class _Abandoned:
    """The number of threads whose task was cancelled, and which have not noticed it yet."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._number = 0

    def add(self, number: int) -> None:
        """Add to the number, in any thread."""
        with self._lock:
            self._number += number

    def is_full(self) -> bool:
        """Whether as many threads are abandoned as may run."""
        return self._number >= _MAX_THREADS


@final
class _Work:
    """A call in a worker thread, and whether its task has left it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_running = False
        self._is_cancelled = False

    def is_cancelled(self) -> bool:
        """Whether nothing waits for the result any more."""
        return self._is_cancelled

    def run(self, function: Callable[[Callable[[], bool]], T]) -> T:
        """Call the function in the worker thread.

        A thread that starts after the cancellation need not call this, as anyio's does not.
        """
        with self._lock:
            self._is_running = True
            if self._is_cancelled:
                _abandoned.add(1)

        try:
            return function(self.is_cancelled)
        finally:
            with self._lock:
                self._is_running = False
                if self._is_cancelled:
                    _abandoned.add(-1)

    def cancel(self) -> None:
        """Leave the call, in the thread of the event loop."""
        with self._lock:
            self._is_cancelled = True
            if self._is_running:
                _abandoned.add(1)


@final
class LoopLimiter:
    """A limit of concurrent calls, in each event loop."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._limiter: RunVar[CapacityLimiter] = RunVar("_limiter")

    def get(self) -> CapacityLimiter:
        """Return the limiter of the running event loop."""
        limiter = self._limiter.get(None)
        if limiter is None:
            limiter = CapacityLimiter(self._total)
            self._limiter.set(limiter)

        return limiter


_abandoned = _Abandoned()
_threads = LoopLimiter(_MAX_THREADS)


@names_shortages
async def run_in_worker(function: Callable[[Callable[[], bool]], T]) -> T:
    """Run a blocking function in a worker thread, and return its result.

    A cancelled call returns at once. The thread then continues until the function returns, which
    should look at its argument now and then; further calls wait while many such threads run.

    Args:
        function: Called with a function that returns whether the call was cancelled.
    """
    async with _threads.get():
        while _abandoned.is_full():  # noqa: ASYNC110 - threads cannot set an event of a loop.
            await sleep(_POLL_SECONDS)

        work = _Work()
        try:
            return await to_thread.run_sync(work.run, function, abandon_on_cancel=True)
        except BaseException:
            work.cancel()
            raise


@final
class _Call:
    """A call that its task does not leave before it has ended, once it has started."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_running = False
        self._is_refused = False

    def run(self, function: Callable[[], T]) -> T:
        """Call the function in the worker thread."""
        with self._lock:
            if self._is_refused:
                raise RuntimeError("the call was cancelled before it started")

            self._is_running = True

        try:
            return function()
        finally:
            self._is_running = False

    async def join(self) -> None:
        """Wait until the call has ended; it does not start any more."""
        with self._lock:
            self._is_refused = True

        while self._is_running:  # threads cannot set an event of a loop.
            with CancelScope(shield=True):
                try:
                    await sleep(_POLL_SECONDS)
                except get_cancelled_exc_class():
                    continue  # The task is cancelled already.


async def run_to_end(function: Callable[[], T], limiter: CapacityLimiter) -> T:
    """Run a blocking function in a worker thread, and return its result.

    When the call returns or raises, the function has ended, or never runs: what it uses can be
    used again. That also holds for the cancellation of a task by asyncio itself
    (`asyncio.timeout`, `task.cancel()`), from which no scope shields.
    """
    call = _Call()
    try:
        return await to_thread.run_sync(call.run, function, limiter=limiter)
    except BaseException:
        await call.join()
        raise
