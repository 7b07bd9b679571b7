"""The task of an engine: a thread steps the model, and the event loop delivers the results."""

from __future__ import annotations

__all__ = ("Delivery", "EngineTask", "StepLoop")

from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from functools import partial
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
from anyio.lowlevel import checkpoint

from aiomlc.errors import AiomlcError, EngineDeadError
from aiomlc.runtime.concurrency.event_loop import check_loop, running_loop, spawn_system_task
from aiomlc.runtime.concurrency.interrupts import (
    protect_from_interrupts,
    raise_in_loop,
    uninterruptible,
)
from aiomlc.runtime.concurrency.process_lifecycle import (
    EXIT_SECONDS,
    FORKED_MESSAGE,
    at_exit,
    invalidate_after_fork,
)
from aiomlc.runtime.engine.end_reason import EndReason
from aiomlc.runtime.engine.events import EventHub

_ORPHANED = "the event loop or the scope of the engine has ended: open a new engine"


class StepLoop(Protocol):
    """The blocking part of an engine; a worker thread is inside `run` while the engine serves."""

    def run(self) -> None:
        """Work until `stop` is called.

        Raises:
            EngineDeadError: If the model failed.
        """
        ...

    def stop(self) -> None:
        """Make `run` return soon, even if it has not started. Thread-safe; never blocks."""
        ...

    def close(self) -> None:
        """End all unfinished work. Called after `run` has returned."""
        ...

    def release(self) -> None:
        """Free the model. Called in the event loop, after `close`."""
        ...


class Delivery(Protocol):
    """The part of an engine that delivers results to readers, in the event loop's thread."""

    wake_fd: int  #: Readable while there is something to deliver.

    def deliver(self) -> bool:
        """Deliver some results that are ready, and return whether others are. Never blocks."""
        ...

    def end(self, reason: Callable[[], AiomlcError]) -> None:
        """Fail every remaining reader, each with a separate error."""
        ...


@final
class EngineTask(AsyncContextManagerMixin):
    """The task that runs an engine in one event loop, inside `async with` or after `start`.

    Except for `stop` and `terminate`, all methods must be called in that event loop.
    """

    def __init__(
        self, loop: StepLoop, delivery: Delivery | None = None, events: EventHub | None = None
    ) -> None:
        """Create a task; `delivery` is None if nothing is delivered, as for an encoder."""
        self.events: EventHub = events or EventHub()
        self._step_loop = loop
        self._delivery = delivery
        self._closing = False
        self._closed = False
        self._end_reason = EndReason()
        self._running = Lock()  # Held while a thread is inside `StepLoop.run`.
        self._step_thread_id: int | None = None  # The id of that thread.
        self._event_loop: object = None
        self._thread_id: int | None = None
        self._system_task: object = None
        self._has_started: Event | None = None
        self._has_ended: Event | None = None
        self._is_over = ThreadEvent()  # Set while no part of the engine runs in an event loop.
        self._is_over.set()
        invalidate_after_fork(self)
        at_exit(self)

    @property
    def state(self) -> str:
        """`open`, `closed` or `dead`."""
        return "dead" if self._end_reason.failure else "closed" if self._closing else "open"

    @property
    def is_over(self) -> bool:
        """Whether no part of the engine runs in an event loop: before start or after the end."""
        return self._is_over.is_set()

    @property
    def is_closed(self) -> bool:
        """Whether all readers have been ended."""
        return self._closed

    @property
    def event_loop(self) -> object:
        """The identity of the event loop that serves; None before `start`."""
        return self._event_loop

    def is_stepping_here(self) -> bool:
        """Return whether the calling thread is the step thread."""
        return self._step_thread_id == get_ident()

    # ---- Start ----

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
            failure = self._end_reason.only_other_cause(group)
            if failure is None:
                raise
        finally:
            self._finish()

        if failure is not None:
            raise failure

    def start(self) -> None:
        """Serve in a system task of the running event loop, until `terminate` or its end."""
        self._bind_loop()
        self._system_task = spawn_system_task(self._serve_detached, name="aiomlc engine")

    async def wait_started(self) -> None:
        """Wait until every task of the engine has started.

        Without this wait, asyncio warns about a coroutine that was never awaited if the event loop
        ends immediately.
        """
        if self._has_started is not None:
            await self._has_started.wait()

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
        protect_from_interrupts()
        if self._closing:
            raise self.closed_error()

        self._has_started = Event()
        self._has_ended = Event()
        self._is_over.clear()
        self._event_loop = running_loop()
        self._thread_id = get_ident()

    # ---- Serving ----

    @uninterruptible
    async def _serve(self) -> None:
        try:
            async with create_task_group() as tasks:
                tasks.start_soon(self._run_steps, tasks.cancel_scope.cancel, name="aiomlc steps")
                try:
                    await self._deliver()
                finally:
                    if not self._closing:
                        self._end_reason.text = _ORPHANED

                    # Here and not in the child task, which may never have started.
                    self.stop()
        except Exception as error:  # noqa: BLE001 - raised below, as an EngineDeadError.
            self._end_reason.record_failure(error)
        finally:
            assert self._has_started is not None, "made with the task"
            assert self._has_ended is not None, "made with the task"
            with ExitStack() as ends:
                ends.callback(self._is_over.set)
                ends.callback(self._has_started.set)
                ends.callback(self._has_ended.set)
                ends.callback(self._step_loop.release)  # No task waits on the wake fd any more.
                self._finish()

        if self._end_reason.failure is not None:
            raise self._end_reason.failure

    @uninterruptible
    async def _serve_detached(self) -> None:
        # No caller awaits this task; every stream and every later call raises its failure.
        try:
            await self._serve()
        except EngineDeadError:
            pass
        except KeyboardInterrupt as error:
            raise_in_loop(error)

    @uninterruptible
    async def _run_steps(self, end_delivery: Callable[[], None]) -> None:
        # Enters native code once and never takes the GIL until it is stopped.
        assert self._has_started is not None, "made with the task"
        self._has_started.set()
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
                self._end_reason.record_failure(error)
            finally:
                self._step_thread_id = None

    async def _deliver(self) -> None:
        if self._delivery is None:
            await sleep_forever()
            return

        while True:
            try:
                await wait_readable(self._delivery.wake_fd)
                while self._delivery.deliver():
                    await checkpoint()
            except KeyboardInterrupt as error:  # With asyncio, but without `asyncio.run`.
                raise_in_loop(error)

    # ---- End ----

    def stop(self) -> None:
        """Reject new requests and let the step loop return. Thread-safe; never blocks."""
        self._closing = True
        self._step_loop.stop()

    def terminate(self) -> None:
        """End every request and the step loop, and free the KV cache. Thread-safe and idempotent.

        Waiting readers get `EngineClosedError`. Blocks until the step loop has returned, which
        takes at most the current step. In the step thread, which may call this method in a
        logits processor, it returns at once.
        """
        self.stop()
        if self.is_stepping_here():
            return

        with self._running:
            pass

        if self._thread_id is None or self._thread_id == get_ident():
            self._finish()

    async def aclose(self) -> None:
        """End like `terminate`, and wait until the model is freed."""
        self.stop()
        # An event of an event loop that has ended cannot be awaited in another one.
        if self._has_ended is not None and not self.is_over:
            await self._has_ended.wait()

    def abandon(self) -> None:
        """Close the engine in a forked process, which has none of its threads."""
        self._end_reason.text = FORKED_MESSAGE
        self._closing = self._closed = True
        self._running = Lock()  # A thread of the parent process may hold the previous lock.
        self._is_over = ThreadEvent()
        self._is_over.set()

    def stop_if_orphaned(self) -> None:
        """Stop if the thread of the event loop has ended, or is the calling thread at its exit."""
        if not self.is_over and not self._has_live_loop():
            self.stop()

    def at_exit(self) -> None:
        """End like `terminate`, and wait for an event loop in a daemon thread to free the model."""
        if self._is_over.is_set():
            return

        self.stop()
        if self._has_live_loop():
            self.terminate()
            self._is_over.wait(EXIT_SECONDS)

    def _has_live_loop(self) -> bool:
        here = get_ident()
        return self._thread_id in {t.ident for t in enumerate_threads() if t.ident != here}

    def _finish(self) -> None:
        """Deliver the remaining results, close the step loop and end every reader."""
        if self._closed:
            return

        self._closed = True
        self._closing = True
        steps: list[Callable[[], None]] = [self._step_loop.close]
        if self._delivery is not None:
            steps.insert(0, partial(_deliver_all, self._delivery))

        with self._running:
            for step in steps:
                try:
                    step()
                except Exception as error:  # noqa: BLE001 - raised to every reader.
                    self._end_reason.record_failure(error)

        if self._end_reason.failure is not None:
            self.events.emit("dead", error=self._end_reason.failure)

        if self._delivery is not None:
            self._delivery.end(self.closed_error)

    def closed_error(self) -> AiomlcError:
        """Return a new error that contains the reason why the engine does not serve."""
        return self._end_reason.new_error()


def _deliver_all(delivery: Delivery) -> None:
    while delivery.deliver():
        pass
