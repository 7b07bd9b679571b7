"""Blocking work in worker threads, and its cancellation."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from anyio import (
    CapacityLimiter,
    Event,
    create_task_group,
    fail_after,
    from_thread,
    to_thread,
    wait_all_tasks_blocked,
)
from anyio.lowlevel import checkpoint

from aiomlc.runtime.concurrency.worker_thread import run_in_worker, run_to_end


async def test_the_result_and_the_errors_of_the_function_are_returned() -> None:
    def fail(_is_cancelled: Callable[[], bool]) -> None:
        raise LookupError("x")

    assert await run_in_worker(lambda is_cancelled: is_cancelled()) is False
    with pytest.raises(LookupError, match="x"):
        await run_in_worker(fail)


async def test_a_cancelled_call_returns_at_once_and_tells_its_thread() -> None:
    started, continues, ended = Event(), threading.Event(), threading.Event()
    seen = []

    def work(is_cancelled: Callable[[], bool]) -> None:
        from_thread.run_sync(started.set)
        continues.wait(20)
        seen.append(is_cancelled())
        ended.set()

    async with create_task_group() as tasks:
        tasks.start_soon(run_in_worker, work)
        await started.wait()
        tasks.cancel_scope.cancel()

    assert seen == []
    continues.set()
    assert await to_thread.run_sync(ended.wait, 20)
    assert seen == [True]


async def test_cancelled_calls_do_not_pile_up_threads() -> None:
    continues = threading.Event()
    lock = threading.Lock()
    running, most = 0, 0

    def work(_is_cancelled: Callable[[], bool]) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        continues.wait(20)
        with lock:
            running -= 1

    for _ in range(30):
        async with create_task_group() as tasks:
            tasks.start_soon(run_in_worker, work)
            await to_thread.run_sync(lambda: None)
            tasks.cancel_scope.cancel()

    continues.set()
    with fail_after(20):
        assert await run_in_worker(lambda _: 1) == 1

    assert most <= 8


async def test_calls_that_are_cancelled_before_their_thread_starts_leave_no_trace() -> None:
    for number in range(300):
        async with create_task_group() as tasks:
            tasks.start_soon(run_in_worker, lambda is_cancelled: is_cancelled())
            for _ in range(number % 6):
                await checkpoint()

            tasks.cancel_scope.cancel()

    with fail_after(10):
        assert await run_in_worker(lambda is_cancelled: is_cancelled()) is False


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_asyncios_own_cancellation_waits_for_the_end_of_the_function() -> None:
    import asyncio  # noqa: TID251 - what is tested.

    started, continues = Event(), threading.Event()
    order = []

    def work() -> None:
        from_thread.run_sync(started.set)
        continues.wait(20)
        order.append("the function")

    async def run() -> None:
        try:
            await run_to_end(work, CapacityLimiter(1))
        finally:
            order.append("the call")

    task = asyncio.ensure_future(run())
    await started.wait()
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0)

    assert order == []
    continues.set()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert order == ["the function", "the call"]


async def test_a_call_that_is_cancelled_before_it_starts_never_runs() -> None:
    limiter = CapacityLimiter(1)
    calls: list[str] = []
    async with limiter, create_task_group() as tasks:
        tasks.start_soon(run_to_end, lambda: calls.append("x"), limiter)
        await wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()

    assert calls == []
