"""The thread of a blocking engine, whose callers are interrupted."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress

import pytest
from anyio import sleep_forever
from anyio.lowlevel import checkpoint

from aiomlc import EngineClosedError
from aiomlc.runtime.concurrency.loop_thread import Call, LoopThread
from tests.interruption import interrupt_main_thread

pytestmark = pytest.mark.timeout(20)


class Scope:
    """A scope that records whether it is open."""

    def __init__(self) -> None:
        self.is_open = False

    @asynccontextmanager
    async def entered(self) -> AsyncIterator[None]:
        self.is_open = True
        try:
            yield
        finally:
            self.is_open = False


def start(scope: AbstractAsyncContextManager[object]) -> LoopThread:
    thread = LoopThread(scope)
    thread.start()
    return thread


@contextmanager
def running() -> Iterator[LoopThread]:
    thread = start(Scope().entered())
    yield thread
    thread.stop()
    thread.join()


def stop_and_join(thread: LoopThread) -> None:
    thread.stop()
    thread.join()


async def interrupt_caller() -> None:
    interrupt_main_thread()
    await sleep_forever()


def submitted(thread: LoopThread, call: Call[object]) -> Call[object]:
    thread.submit(call)
    return call


def test_the_scope_is_open_until_the_thread_is_stopped() -> None:
    scope = Scope()
    thread = start(scope.entered())
    assert scope.is_open
    for _ in range(2):
        thread.stop()
        thread.join()

    assert not scope.is_open
    assert "aiomlc engine" not in {live.name for live in threading.enumerate()}


def test_a_call_returns_its_result_once() -> None:
    async def answer() -> int:
        await checkpoint()
        return 42

    with running() as thread:
        call: Call[object] = submitted(thread, Call(answer))
        assert call.result() == 42
        with pytest.raises(EngineClosedError):
            call.result()


def test_a_call_raises_the_error_of_its_function() -> None:
    async def fail() -> None:
        raise ValueError("deliberate")

    with running() as thread, pytest.raises(ValueError, match="deliberate"):
        submitted(thread, Call(fail)).result()


def test_calls_after_the_stop_are_rejected() -> None:
    with running() as thread:
        thread.stop()
        with pytest.raises(EngineClosedError):
            submitted(thread, Call(sleep_forever)).result()

    with pytest.raises(EngineClosedError):
        submitted(thread, Call(sleep_forever)).result()


def test_an_interrupted_call_is_cancelled() -> None:
    with running() as thread:
        call: Call[object] = Call(interrupt_caller)
        with pytest.raises(KeyboardInterrupt):
            submitted(thread, call).result()

        thread.cancel(call)
        with pytest.raises(EngineClosedError):
            call.result()


@pytest.mark.parametrize("when", ["before the end", "after the end", "never"])
def test_a_result_that_nobody_takes_is_discarded(when: str) -> None:
    discarded: list[object] = []
    has_started = threading.Event()

    async def answer() -> int:
        has_started.set()
        if when == "before the end":
            with suppress(BaseException):  # As a call that ends while it is cancelled.
                await sleep_forever()

        return 42

    with running() as thread:
        call: Call[object] = submitted(thread, Call(answer, discarded.append))
        assert has_started.wait(10)
        if when != "never":
            thread.cancel(call)
        del call

    assert discarded == [42]


def test_a_result_that_was_taken_is_not_discarded() -> None:
    discarded: list[object] = []

    async def answer() -> int:
        return 42

    with running() as thread:
        call: Call[object] = submitted(thread, Call(answer, discarded.append))
        assert call.result() == 42
        thread.cancel(call)
        del call

    assert discarded == []


@asynccontextmanager
async def entering(function: Callable[[], object]) -> AsyncIterator[None]:
    function()
    await sleep_forever()
    yield


def test_an_interrupted_start_ends_the_thread() -> None:
    thread = LoopThread(entering(interrupt_main_thread))
    with pytest.raises(KeyboardInterrupt):
        thread.start()

    thread.join()


def test_a_scope_that_cannot_be_entered_ends_the_thread_with_its_error() -> None:
    def fail() -> None:
        raise ValueError("deliberate")

    thread = LoopThread(entering(fail))
    with pytest.raises(ValueError, match="deliberate"):
        thread.start()

    thread.join()


def test_an_interrupted_stop_can_be_repeated() -> None:
    may_leave = threading.Event()

    @asynccontextmanager
    async def scope() -> AsyncIterator[None]:
        yield
        interrupt_main_thread()
        while not may_leave.is_set():
            await checkpoint()

    thread = start(scope())
    with pytest.raises(KeyboardInterrupt):
        stop_and_join(thread)

    may_leave.set()
    thread.stop()
    thread.join()


def test_a_failure_of_the_scope_is_raised_once_and_calls_go_on_until_the_stop() -> None:
    failing = threading.Event()

    @asynccontextmanager
    async def scope() -> AsyncIterator[None]:
        yield
        failing.set()
        raise ValueError("deliberate")

    thread = start(scope())
    thread.stop()
    with pytest.raises(ValueError, match="deliberate"):
        thread.join()

    thread.join()
    assert failing.is_set()
