"""The life of an engine in an event loop: the thread that steps and the task that delivers."""

from __future__ import annotations

__all__ = ("Delivery", "EngineTask", "StepLoop")

from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from threading import Event as ThreadEvent
from threading import Lock, get_ident
from threading import enumerate as enumerate_threads
from typing import Protocol, Self, final

from anyio import (
    AsyncContextManagerMixin,
    CapacityLimiter,
    Event,
    create_task_group,
    sleep_forever,
    to_thread,
    wait_readable,
)

from aiomlc.errors import AiomlcError, EngineClosedError, EngineDeadError
from aiomlc.runtime.concurrency.event_loop import check_loop, running_loop, spawn_system_task
from aiomlc.runtime.concurrency.process_lifecycle import (
    FORKED_MESSAGE,
    at_exit,
    invalidate_after_fork,
)

_EXIT_SECONDS = 2.0  # How long the interpreter's end waits for an event loop that is blocked.
_ORPHANED = "the event loop or the scope that the engine ran in has ended: open a new engine"


class StepLoop(Protocol):
    """The blocking part of an engine: a worker thread is inside `run` while the engine serves."""

    def run(self) -> None:
        """Work until `stop` is called.

        Raises:
            EngineDeadError: If the model failed.
        """

    def stop(self) -> None:
        """Make `run` return soon, also if it has not begun. From any thread; never blocks."""

    def close(self) -> None:
        """End everything that is unfinished. Called when `run` has returned."""

    def release(self) -> None:
        """Free the model. Called in the event loop, after `close`."""


class Delivery(Protocol):
    """The part of an engine that hands results to readers, in the event loop's thread."""

    wake_fd: int  #: Readable while there is something to deliver.

    def deliver(self) -> None:
        """Hand out everything that is ready. Never blocks."""

    def end(self, reason: Callable[[], AiomlcError]) -> None:
        """Fail every reader that is left, each with an error of its own."""


@final
class EngineTask(AsyncContextManagerMixin):
    """Runs an engine in one event loop, as an async context manager or from `start` on.

    Everything but `stop` and `terminate` belongs to the event loop that serves.
    """

    def __init__(self, loop: StepLoop, delivery: Delivery | None = None) -> None:
        """Without `delivery` the engine produces nothing for readers, as an encoder."""
        self._step_loop = loop
        self._delivery = delivery
        self._closing = False
        self._closed = False
        self._end_reason = "the engine was terminated"  # Unless something else ended it.
        self._death: EngineDeadError | None = None
        self._running = Lock()  # Held while a thread is inside `StepLoop.run`.
        self._step_thread_id: int | None = None  # The id of that thread.
        self._event_loop: object = None
        self._thread_id: int | None = None
        self._system_task: object = None
        self._has_begun: Event | None = None
        self._has_ended: Event | None = None
        self._is_over = ThreadEvent()  # Set while nothing of the engine runs in an event loop.
        self._is_over.set()
        invalidate_after_fork(self)
        at_exit(self)

    @property
    def state(self) -> str:
        """`open`, `closed` or `dead`."""
        return "dead" if self._death else "closed" if self._closing else "open"

    @property
    def is_over(self) -> bool:
        """Whether nothing of the engine runs in an event loop, be it no more or not yet."""
        return self._is_over.is_set()

    @property
    def is_closed(self) -> bool:
        """Whether every reader has been ended."""
        return self._closed

    @property
    def event_loop(self) -> object:
        """The identity of the event loop that serves; None before `start`."""
        return self._event_loop

    def is_stepping_here(self) -> bool:
        """Whether the calling thread is the one inside the step loop."""
        return self._step_thread_id == get_ident()

    # ---- Beginning ----

    @asynccontextmanager
    async def __asynccontextmanager__(self) -> AsyncIterator[Self]:
        failure: BaseException | None = None
        try:
            async with create_task_group() as tasks:
                self._bind_loop()
                tasks.start_soon(self._serve, name="aiomlc engine")
                try:
                    yield self
                finally:
                    self.stop()
        except BaseExceptionGroup as group:
            failure = self._only_cause(group)
            if failure is None:
                raise
        finally:
            self._finish()

        if failure is not None:
            raise failure

    def start(self) -> None:
        """Serve in a system task of the running event loop, until `terminate` or the loop's end."""
        self._bind_loop()
        self._system_task = spawn_system_task(self._serve_detached, name="aiomlc engine")

    async def wait_begun(self) -> None:
        """Wait until every task of the engine has begun.

        If the event loop ends before that, asyncio warns of a coroutine that was never awaited.
        """
        if self._has_begun is not None:
            await self._has_begun.wait()

    def check_serving(self) -> None:
        """Require that the engine serves, in the running event loop.

        Raises:
            EngineClosedError: If it was terminated, or serves another event loop.
            EngineDeadError: If it failed.
        """
        if self._closing or self._event_loop is None:
            raise self.closed_error()

        check_loop(self._event_loop)

    def _bind_loop(self) -> None:
        if self._closing:
            raise self.closed_error()

        self._has_begun = Event()
        self._has_ended = Event()
        self._is_over.clear()
        self._event_loop = running_loop()
        self._thread_id = get_ident()

    # ---- Serving ----

    async def _serve(self) -> None:
        try:
            async with create_task_group() as tasks:
                tasks.start_soon(self._run_steps, tasks.cancel_scope.cancel, name="aiomlc steps")
                try:
                    await self._deliver()
                finally:
                    if not self._closing:
                        self._end_reason = _ORPHANED

                    # Here and not in the child: this body runs even if the child never began.
                    self.stop()
        except Exception as error:  # noqa: BLE001 - raised below, as an EngineDeadError.
            self._record_failure(error)
        finally:
            assert self._has_begun is not None, "made with the task"
            assert self._has_ended is not None, "made with the task"
            with ExitStack() as ends:
                ends.callback(self._is_over.set)
                ends.callback(self._has_begun.set)
                ends.callback(self._has_ended.set)
                ends.callback(self._step_loop.release)  # Now that nothing waits on the wake fd.
                self._finish()

        if self._death is not None:
            raise self._death

    async def _serve_detached(self) -> None:
        # Nobody owns this task: its failure is raised by every stream and every later call.
        with suppress(EngineDeadError):
            await self._serve()

    async def _run_steps(self, end_delivery: Callable[[], None]) -> None:
        # Enters native code once and never takes the GIL until it is stopped.
        assert self._has_begun is not None, "made with the task"
        self._has_begun.set()
        try:
            await to_thread.run_sync(self._run_step_loop, limiter=CapacityLimiter(1))
        finally:
            end_delivery()

    def _run_step_loop(self) -> None:
        with self._running:
            if self._closing:
                return

            self._step_thread_id = get_ident()
            try:
                self._step_loop.run()
            except Exception as error:  # noqa: BLE001 - `_serve` raises it in the event loop.
                self._record_failure(error)
            finally:
                self._step_thread_id = None

    async def _deliver(self) -> None:
        if self._delivery is None:
            await sleep_forever()
            return

        while True:
            await wait_readable(self._delivery.wake_fd)
            self._delivery.deliver()

    # ---- Ending ----

    def stop(self) -> None:
        """Refuse new requests and let the step loop return. From any thread; never blocks."""
        self._closing = True
        self._step_loop.stop()

    def terminate(self) -> None:
        """End every request and the step loop, and free the KV cache. From any thread.

        Returns when the step loop has: it blocks for at most the current step. Every waiting reader
        gets `EngineClosedError`. A second call does nothing. The stepping thread itself, in a
        logits processor, cannot wait for its own end: its call returns at once.
        """
        self.stop()
        if self.is_stepping_here():
            return

        with self._running:
            pass

        if self._thread_id is None or self._thread_id == get_ident():
            self._finish()

    async def aclose(self) -> None:
        """End as `terminate` does, and wait until the model is free."""
        self.stop()
        # The event of an event loop that has ended is of no use in another one.
        if self._has_ended is not None and not self.is_over:
            await self._has_ended.wait()

    def abandon(self) -> None:
        """Close the engine in a forked process, which has none of its threads."""
        self._end_reason = FORKED_MESSAGE
        self._closing = self._closed = True
        self._running = Lock()  # The former one may be held by a thread that is not here.
        self._is_over = ThreadEvent()
        self._is_over.set()

    def stop_if_orphaned(self) -> None:
        """Stop if the thread of the event loop has ended, or is this one, which is at its end."""
        here = get_ident()
        loops = {thread.ident for thread in enumerate_threads() if thread.ident != here}
        if not self.is_over and self._thread_id not in loops:
            self.stop()

    def at_exit(self) -> None:
        """End as `terminate` does, and wait for an event loop in a daemon thread to do its part."""
        if self._is_over.is_set():
            return

        self.stop_if_orphaned()
        if not self._closing:
            self.terminate()
            self._is_over.wait(_EXIT_SECONDS)

    def _finish(self) -> None:
        """Close the step loop and end every reader; finished answers are delivered before."""
        if self._closed:
            return

        self._closed = True
        self._closing = True
        steps = [self._step_loop.close]
        if self._delivery is not None:
            steps.insert(0, self._delivery.deliver)

        with self._running:
            for step in steps:
                try:
                    step()
                except Exception as error:  # noqa: BLE001 - raised to every reader.
                    self._record_failure(error)

        if self._delivery is not None:
            self._delivery.end(self.closed_error)

    def _record_failure(self, error: Exception) -> None:
        """Keep the first cause of the engine's death."""
        if self._death is not None:
            return

        if isinstance(error, EngineDeadError):
            self._death = error
        else:
            self._death = EngineDeadError(f"the engine failed: {error}")
            self._death.__cause__ = error

    def closed_error(self) -> AiomlcError:
        """Return why the engine does not serve, as a new error for each caller."""
        if self._death is None:
            return EngineClosedError(self._end_reason)

        # One instance per reader: an exception that several tasks raise mixes their tracebacks.
        error = EngineDeadError(str(self._death))
        error.__cause__ = self._death
        return error

    def _only_cause(self, group: BaseExceptionGroup) -> BaseException | None:
        """Return the one exception of a group that is not a consequence of the engine's death."""
        causes = [error for error in group.exceptions if not self._follows_death(error)]
        return causes[0] if len(causes) == 1 else None

    def _follows_death(self, error: BaseException) -> bool:
        if isinstance(error, BaseExceptionGroup):
            return all(self._follows_death(inner) for inner in error.exceptions)

        return self._death is not None and error.__cause__ is self._death
