"""Tests of the turns of the event loop."""

from __future__ import annotations

import pytest
from anyio import create_task_group, get_current_task
from anyio.lowlevel import checkpoint

from aiomlc.runtime.concurrency import turns as turns_module
from aiomlc.runtime.concurrency.turns import Turns

pytestmark = pytest.mark.timeout(20)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that only a test moves."""
    now = [100.0]
    monkeypatch.setattr(turns_module, "monotonic", lambda: now[0])
    return now


async def run(turns: Turns, clock: list[float], *, num_tasks: int, pieces: int) -> list[set[int]]:
    """Let tasks work for 4 ms at a time; return which of them worked in each turn of the loop."""
    worked: list[set[int]] = [set()]
    live = [num_tasks]

    async def work(index: int) -> None:
        for _ in range(pieces):
            await turns.take()
            worked[-1].add(index)
            clock[0] += 0.004
        live[0] -= 1

    async def count_turns() -> None:
        while live[0]:
            await checkpoint()
            worked.append(set())

    async with create_task_group() as tasks:
        tasks.start_soon(count_turns)
        for index in range(num_tasks):
            tasks.start_soon(work, index)

    return worked


async def test_a_turn_ends_after_its_time_however_many_tasks_work(clock: list[float]) -> None:
    worked = await run(Turns(), clock, num_tasks=20, pieces=3)

    # Three pieces of 4 ms begin within 10 ms; trio runs the tasks of a turn in any order.
    assert max(map(len, worked)) <= 4
    assert sum(map(len, worked)) == 60


async def test_those_in_line_are_served_in_the_order_of_their_arrival(clock: list[float]) -> None:
    turns = Turns()
    arrived: list[int] = []
    served: list[int] = []

    async def work() -> None:
        arrived.append(get_current_task().id)
        await turns.take()
        served.append(get_current_task().id)
        clock[0] += 1

    async with create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(work)

    assert served == arrived


async def test_a_cancelled_task_leaves_the_line(clock: list[float]) -> None:
    turns = Turns()
    served: list[int] = []

    async def work(index: int) -> None:
        await turns.take()
        served.append(index)
        clock[0] += 1

    async with create_task_group() as tasks:
        async with create_task_group() as leaving:
            leaving.start_soon(work, 0)
            leaving.start_soon(work, 1)
            leaving.cancel_scope.cancel()
        tasks.start_soon(work, 2)

    assert served == [2]


async def test_nobody_waits_while_a_turn_has_time(clock: list[float]) -> None:
    turns = Turns()
    turns.begin()
    clock[0] += 0.009

    assert not turns.are_over()
    clock[0] += 0.001
    assert turns.are_over()
