"""Tests of the start, end and failure of an engine's task."""

from __future__ import annotations

import threading

import anyio
import pytest
from anyio import (
    CancelScope,
    create_task_group,
    get_running_tasks,
    to_thread,
    wait_all_tasks_blocked,
)
from anyio.lowlevel import checkpoint

from aiomlc.errors import EngineClosedError, EngineDeadError
from aiomlc.runtime.engine.engine_client import EngineClient
from aiomlc.runtime.engine.prompt import Prompt
from aiomlc.runtime.engine.stream import DeltaStream
from aiomlc.testing import FakeCore
from tests.unit.runtime.engine.engine_helpers import (
    LONG_REPLY,
    OPTIONS,
    one_step_core,
    read,
    read_one,
)

pytestmark = pytest.mark.timeout(20)
BACKENDS = pytest.mark.parametrize("backend", ["asyncio", "trio"])


def engine_tasks() -> set[str]:
    """Return the names of the engine's tasks in this event loop."""
    names = {task.name or "" for task in get_running_tasks()}
    return {name for name in names if name.startswith("aiomlc")}


async def test_engine_failure_is_raised_to_every_reader_and_from_the_scope() -> None:
    core = FakeCore([LONG_REPLY], dies_at_step=3)
    errors: list[EngineDeadError] = []

    async def reader(stream: DeltaStream) -> None:
        with pytest.raises(EngineDeadError, match="scripted failure") as caught:
            await read(stream)

        errors.append(caught.value)

    async def scope() -> None:
        async with EngineClient(core) as engine, create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(reader, engine.open_stream(Prompt([1]), OPTIONS))

            await anyio.sleep_forever()

    with pytest.raises(EngineDeadError, match="scripted failure"):
        await scope()

    assert len(errors) == 5
    assert len(set(map(id, errors))) == 5
    assert core.is_closed


async def test_engine_failure_is_a_single_error_for_a_reader_inside_the_scope() -> None:
    engine = EngineClient(FakeCore([LONG_REPLY], dies_at_step=3))

    with pytest.raises(EngineDeadError, match="scripted failure"):
        async with engine:
            await read(engine.open_stream(Prompt([1]), OPTIONS))

    with pytest.raises(EngineDeadError):
        engine.open_stream(Prompt([1]), OPTIONS)


async def test_unexpected_error_of_the_core_is_raised_as_engine_dead_error() -> None:
    core = FakeCore([LONG_REPLY])

    def run() -> None:
        raise OSError("deliberate bug")

    core.run = run  # type: ignore[method-assign]

    with pytest.raises(EngineDeadError, match="deliberate bug") as caught:
        async with EngineClient(core):
            await anyio.sleep_forever()

    assert isinstance(caught.value.__cause__, OSError)


async def test_exception_inside_the_scope_is_raised_unchanged() -> None:
    core = FakeCore([LONG_REPLY], hand_stepped=True)
    engine = EngineClient(core)

    async def scope() -> None:
        async with engine:
            stream = engine.open_stream(Prompt([1]), OPTIONS)
            try:
                raise ZeroDivisionError
            finally:
                streams.append(stream)

    streams: list[DeltaStream] = []
    with pytest.raises(ZeroDivisionError):
        await scope()

    assert core.is_closed
    assert not core.is_running
    with pytest.raises(EngineClosedError):
        await read(streams[0])


async def test_exception_group_inside_the_scope_is_raised_unchanged() -> None:
    group = ExceptionGroup("group", [ZeroDivisionError()])

    with pytest.raises(ExceptionGroup) as caught:
        async with EngineClient(FakeCore()):
            raise group

    assert (caught.value.message, caught.value.exceptions) == ("group", group.exceptions)


async def test_leaving_the_scope_closes_streams_that_other_tasks_read() -> None:
    core = FakeCore([LONG_REPLY], hand_stepped=True)

    async def reader(stream: DeltaStream) -> None:
        with pytest.raises(EngineClosedError):
            await read(stream)

    async with create_task_group() as tasks, EngineClient(core) as engine:
        tasks.start_soon(reader, engine.open_stream(Prompt([1]), OPTIONS))
        await wait_all_tasks_blocked()

    assert core.is_closed
    assert not core.is_running
    assert core.statistics().free_pages == core.statistics().total_pages


async def test_cancelling_the_owner_of_the_scope_stops_the_core() -> None:
    core = one_step_core()

    with CancelScope() as cancelled:
        async with EngineClient(core) as engine:
            stream = engine.open_stream(Prompt([1]), OPTIONS)
            await read_one(stream)
            cancelled.cancel()
            await anyio.sleep_forever()

    assert cancelled.cancelled_caught
    assert core.is_closed
    assert not core.is_running


async def test_scope_that_is_cancelled_immediately_stops_the_core() -> None:
    core = FakeCore([LONG_REPLY])

    with CancelScope() as cancelled:
        cancelled.cancel()
        async with EngineClient(core):
            await checkpoint()

    assert core.is_closed
    assert not core.is_running


async def test_terminate_ends_waiting_readers_and_the_core() -> None:
    core = FakeCore([LONG_REPLY], hand_stepped=True)

    async def reader(stream: DeltaStream) -> None:
        with pytest.raises(EngineClosedError):
            await read(stream)

    async with EngineClient(core) as engine, create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(reader, engine.open_stream(Prompt([1]), OPTIONS))

        await wait_all_tasks_blocked()
        engine.task.terminate()
        engine.task.terminate()

        assert not core.is_running
        assert core.is_closed
        with pytest.raises(EngineClosedError):
            engine.open_stream(Prompt([1]), OPTIONS)


async def test_terminate_works_from_another_thread() -> None:
    core = FakeCore([LONG_REPLY], hand_stepped=True)

    async with EngineClient(core) as engine:
        stream = engine.open_stream(Prompt([1]), OPTIONS)
        await to_thread.run_sync(engine.task.terminate)

        assert not core.is_running
        with pytest.raises(EngineClosedError):
            await read(stream)


async def test_terminate_delivers_finished_replies() -> None:
    core = FakeCore(["ab"])

    async with EngineClient(core) as engine:
        await wait_all_tasks_blocked()
        stream = engine.open_stream(Prompt([1]), OPTIONS)
        while core.statistics().steps < 3:
            pass  # Block the event loop, so that it cannot deliver.

        engine.task.terminate()
        text = await read(stream)

    assert text == "ab"


async def test_started_engine_serves_until_terminate() -> None:
    core = FakeCore(["Hello!"])
    engine = EngineClient(core)
    engine.task.start()

    text = await read(engine.open_stream(Prompt([1]), OPTIONS))
    stream = engine.open_stream(Prompt([1]), OPTIONS)
    engine.task.terminate()

    assert text == "Hello!"
    assert not core.is_running
    assert core.is_closed
    with pytest.raises(EngineClosedError):
        await read(stream)


async def test_engine_that_is_terminated_before_its_task_runs_never_steps() -> None:
    core = FakeCore()
    engine = EngineClient(core)
    engine.task.start()
    engine.task.terminate()

    await wait_all_tasks_blocked()

    assert core.is_closed
    assert core.statistics().steps == 0
    assert not core.is_running


async def test_failure_of_a_started_engine_is_raised_to_readers_and_later_callers() -> None:
    engine = EngineClient(FakeCore([LONG_REPLY], dies_at_step=2))
    engine.task.start()

    with pytest.raises(EngineDeadError, match="scripted failure"):
        await read(engine.open_stream(Prompt([1]), OPTIONS))

    with pytest.raises(EngineDeadError, match="scripted failure"):
        engine.open_stream(Prompt([1]), OPTIONS)


async def test_terminate_leaves_no_running_task() -> None:
    engine = EngineClient(FakeCore([LONG_REPLY], hand_stepped=True))
    engine.task.start()
    stream = engine.open_stream(Prompt([1]), OPTIONS)
    await wait_all_tasks_blocked()
    before = engine_tasks()
    engine.task.terminate()
    while engine_tasks():
        await checkpoint()

    assert before == {"aiomlc engine", "aiomlc steps"}
    with pytest.raises(EngineClosedError):
        await read(stream)


def test_no_thread_outlives_the_event_loop() -> None:
    before = set(threading.enumerate())

    async def main() -> None:
        async with EngineClient(FakeCore(["abc"])) as engine:
            await read(engine.open_stream(Prompt([1]), OPTIONS))
        engine = EngineClient(FakeCore([LONG_REPLY]))
        engine.task.start()
        await read_one(engine.open_stream(Prompt([1]), OPTIONS))

    anyio.run(main)

    for thread in set(threading.enumerate()) - before:
        thread.join(5)
        assert not thread.is_alive()


@BACKENDS
def test_end_of_the_event_loop_ends_a_started_engine(backend: str) -> None:
    core = FakeCore([LONG_REPLY])

    async def main() -> None:
        engine = EngineClient(core)
        engine.task.start()
        await read_one(engine.open_stream(Prompt([1]), OPTIONS))

    anyio.run(main, backend=backend)

    assert core.is_closed
    assert not core.is_running


@BACKENDS
def test_event_loop_that_ends_immediately_ends_a_started_engine(backend: str) -> None:
    core = FakeCore([LONG_REPLY])

    async def main() -> None:
        EngineClient(core).task.start()
        await checkpoint()

    anyio.run(main, backend=backend)

    assert not core.is_running
    assert core.statistics().steps == 0


async def test_core_that_fails_to_close_ends_every_reader() -> None:
    core = FakeCore([LONG_REPLY], hand_stepped=True)
    engine = EngineClient(core)
    engine.task.start()
    stream = engine.open_stream(Prompt([1]), OPTIONS)

    def close() -> None:
        raise EngineDeadError("deliberate failure of close")

    core.close = close  # type: ignore[method-assign]
    engine.task.terminate()

    with pytest.raises(EngineDeadError, match="deliberate failure of close"):
        await read(stream)

    with pytest.raises(EngineDeadError, match="deliberate failure of close"):
        engine.open_stream(Prompt([1]), OPTIONS)


async def test_terminated_engine_cannot_be_entered_or_started() -> None:
    engine = EngineClient(FakeCore())
    engine.task.terminate()

    with pytest.raises(EngineClosedError):
        engine.task.start()

    with pytest.raises(EngineClosedError):
        async with engine:
            pass
