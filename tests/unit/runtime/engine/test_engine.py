"""The life of an engine and of its requests, with a scripted core."""

from __future__ import annotations

import gc
import logging
import threading
import weakref
from contextlib import aclosing

import anyio
import pytest
from anyio import (
    CancelScope,
    create_task_group,
    get_running_tasks,
    to_thread,
    wait_all_tasks_blocked,
)
from anyio.from_thread import start_blocking_portal
from anyio.lowlevel import checkpoint

from aiomlc.errors import (
    AiomlcError,
    DuplicateRequestError,
    EngineClosedError,
    EngineDeadError,
    RequestAbortedError,
    RequestFailedError,
)
from aiomlc.runtime.engine.core_protocol import Record
from aiomlc.runtime.engine.engine import Engine
from aiomlc.runtime.engine.stream import Delta, DeltaStream
from aiomlc.sampling_params import SequenceOptions
from aiomlc.testing import FakeCore

OPTIONS = SequenceOptions()
LONG = "a" * 10_000
pytestmark = pytest.mark.timeout(20)
BACKENDS = pytest.mark.parametrize("backend", ["asyncio", "trio"])


def one_step() -> FakeCore:
    """A core that says one character and then waits with the rest."""
    core = FakeCore([LONG], hand_stepped=True)
    core.allow(1)
    return core


def our_tasks() -> set[str]:
    names = {task.name or "" for task in get_running_tasks()}
    return {name for name in names if name.startswith("aiomlc")}


async def read(stream: DeltaStream) -> str:
    async with stream:
        return "".join([delta.text async for delta in stream])


async def read_one(stream: DeltaStream) -> Delta:
    return await stream.__anext__()


async def wait_for_stop(core: FakeCore) -> None:
    assert await to_thread.run_sync(core.wait_until_stopped)


async def wait_until_free(core: FakeCore) -> None:
    """Wait until the core has let every sequence go."""
    while core.statistics().num_running:
        await checkpoint()


async def test_a_stream_gives_the_text_and_the_counts_of_its_sequence() -> None:
    core = FakeCore(["Hello!"])

    async with Engine(core) as engine, engine.open_stream([1, 2, 3], OPTIONS) as stream:
        deltas = [delta async for delta in stream]

    assert "".join(delta.text for delta in deltas) == "Hello!"
    assert [token for delta in deltas for token in delta.token_ids] == list(map(ord, "Hello!"))
    assert deltas[-1][2:] == ("stop", 3, 6, (), 0, 0, None, ())


async def test_concurrent_streams_get_their_own_text() -> None:
    replies = [f"reply {index}" * 5 for index in range(32)]
    texts: dict[int, str] = {}

    async with Engine(FakeCore(replies)) as engine:

        async def reader(index: int) -> None:
            texts[index] = await read(engine.open_stream([index], OPTIONS))

        async with create_task_group() as tasks:
            for index in range(len(replies)):
                tasks.start_soon(reader, index)

    assert sorted(texts.values()) == sorted(replies)


async def test_breaking_out_of_a_stream_cancels_its_request_and_no_other() -> None:
    core = FakeCore([LONG, "survivor"], hand_stepped=True)

    async with Engine(core) as engine:
        async with engine.open_stream([1], OPTIONS) as stream:
            other = engine.open_stream([2], OPTIONS)
            core.allow(1)
            async for _ in stream:
                break

        core.allow(100)
        text = await read(other)

    assert text == "survivor"
    assert core.cancelled == [1]


async def test_closing_works_through_aclosing() -> None:
    core = one_step()

    async with Engine(core) as engine:
        async with aclosing(engine.open_stream([1], OPTIONS)) as stream:
            await read_one(stream)

        await wait_until_free(core)

    assert core.cancelled == [1]


async def test_an_exception_in_the_reader_cancels_its_request() -> None:
    core = one_step()

    async with Engine(core) as engine:

        async def reader() -> None:
            async with engine.open_stream([1], OPTIONS) as stream:
                async for _ in stream:
                    raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await reader()

        await wait_until_free(core)

    assert core.cancelled == [1]


async def test_cancelling_a_parked_reader_cancels_its_request() -> None:
    core = FakeCore([LONG], hand_stepped=True)

    async with Engine(core) as engine, create_task_group() as tasks:
        tasks.start_soon(read, engine.open_stream([1], OPTIONS))
        await wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()

    assert core.cancelled == [1]


async def test_a_reader_in_a_cancelled_scope_cancels_its_request() -> None:
    core = one_step()

    async with Engine(core) as engine:
        with CancelScope() as scope:
            async with engine.open_stream([1], OPTIONS) as stream:
                async for _ in stream:
                    scope.cancel()

        assert core.cancelled == [1]


async def test_a_cancelled_read_loses_nothing() -> None:
    core = FakeCore(["abc"], hand_stepped=True)
    text = ""

    async with Engine(core) as engine, engine.open_stream([1], OPTIONS) as stream:
        for _ in range(3):
            with CancelScope() as scope:
                scope.cancel()
                await read_one(stream)

            core.allow(1)
            text += (await read_one(stream)).text

        core.allow(1)
        rest = await read_one(stream)

    assert text == "abc"
    assert rest.finish_reason == "stop"
    assert core.cancelled == []


async def test_a_dropped_stream_cancels_its_request_when_it_is_collected() -> None:
    core = one_step()

    async with Engine(core) as engine:
        stream = engine.open_stream([1], OPTIONS)
        await read_one(stream)
        reference = weakref.ref(stream)
        del stream
        gc.collect()

        assert reference() is None
        assert core.cancelled == [1]
        await wait_until_free(core)


async def test_a_finished_stream_cancels_nothing() -> None:
    core = FakeCore(["abc"])

    async with Engine(core) as engine:
        stream = engine.open_stream([1], OPTIONS)
        await read(stream)
        await stream.aclose()
        del stream
        gc.collect()

    assert core.cancelled == []


async def test_a_closed_stream_is_at_its_end() -> None:
    async with Engine(one_step()) as engine:
        stream = engine.open_stream([1], OPTIONS)
        await read_one(stream)
        stream.close()

        with pytest.raises(StopAsyncIteration):
            await read_one(stream)


async def test_closing_from_another_task_ends_a_parked_reader() -> None:
    core = FakeCore([LONG], hand_stepped=True)

    async with Engine(core) as engine, create_task_group() as tasks:
        stream = engine.open_stream([1], OPTIONS)
        tasks.start_soon(read, stream)
        await wait_all_tasks_blocked()
        stream.close()

    assert core.cancelled == [1]


async def test_two_readers_of_one_stream_are_refused() -> None:
    core = FakeCore([LONG], hand_stepped=True)

    async with Engine(core) as engine, create_task_group() as tasks:
        stream = engine.open_stream([1], OPTIONS)
        tasks.start_soon(read, stream)
        await wait_all_tasks_blocked()

        with pytest.raises(anyio.BusyResourceError):
            await read_one(stream)

        stream.close()


async def test_what_a_slow_reader_missed_is_merged_into_one_delta() -> None:
    core = FakeCore([LONG])

    async with Engine(core, max_unread_tokens=2 * len(LONG)) as engine:
        stream = engine.open_stream([1], OPTIONS)
        await wait_until_free(core)
        while not stream._mailbox.ended:
            await checkpoint()

        delta = await read_one(stream)
        with pytest.raises(StopAsyncIteration):
            await read_one(stream)

    assert delta.text == LONG
    assert len(delta.token_ids) == len(LONG)
    assert (delta.finish_reason, delta.completion_tokens) == ("stop", len(LONG))


async def test_abort_ends_the_reader_with_an_error_and_no_other_request() -> None:
    core = FakeCore(["first", "second"], hand_stepped=True)
    errors: list[RequestAbortedError] = []

    async with Engine(core) as engine, create_task_group() as tasks:
        first = engine.open_stream([1], OPTIONS, "mine")
        second = engine.open_stream([2], OPTIONS)

        async def reader() -> None:
            with pytest.raises(RequestAbortedError) as caught:
                await read(first)

            errors.append(caught.value)

        tasks.start_soon(reader)
        await wait_all_tasks_blocked()
        engine.abort("mine")
        core.allow(100)
        second_text = await read(second)

    assert [error.request_id for error in errors] == ["mine"]
    assert second_text == "second"
    assert core.cancelled == [1]


async def test_abort_delivers_what_came_before_it() -> None:
    core = FakeCore(["abc"], hand_stepped=True)

    async with Engine(core) as engine, engine.open_stream([1], OPTIONS, "mine") as stream:
        core.allow(1)
        while not stream._mailbox._waiting:
            await checkpoint()

        engine.abort("mine")
        delta = await read_one(stream)
        with pytest.raises(RequestAbortedError):
            await read_one(stream)

    assert delta.text == "a"


async def test_aborting_an_unknown_or_finished_request_does_nothing() -> None:
    core = FakeCore(["abc"])

    async with Engine(core) as engine:
        engine.abort("nobody")
        await read(engine.open_stream([1], OPTIONS, "mine"))
        engine.abort("mine")

    assert core.cancelled == []


async def test_a_second_live_request_of_one_id_is_refused_and_the_first_goes_on() -> None:
    core = FakeCore(["first"], hand_stepped=True)

    async with Engine(core) as engine:
        first = engine.open_stream([1], OPTIONS, "same")
        with pytest.raises(DuplicateRequestError) as caught:
            engine.open_stream([2], OPTIONS, "same")

        core.allow(100)
        text = await read(first)

    assert caught.value.request_id == "same"
    assert text == "first"
    assert core.prompts == [[1]]
    assert core.cancelled == []


async def test_a_request_without_an_id_never_takes_the_one_of_another() -> None:
    async with Engine(FakeCore(["abc"])) as engine:
        named = engine.open_stream([1], OPTIONS, "request-1")
        unnamed = engine.open_stream([1], OPTIONS)
        texts = [await read(named), await read(unnamed)]

    assert texts == ["abc", "abc"]
    assert named.request_id != unnamed.request_id


async def test_an_id_is_free_again_once_its_stream_is_finished_or_closed() -> None:
    core = FakeCore(["one", LONG, "three"], hand_stepped=True)

    async with Engine(core) as engine:
        core.allow(10)
        await read(engine.open_stream([1], OPTIONS, "same"))
        second = engine.open_stream([2], OPTIONS, "same")
        second.close()
        third = engine.open_stream([3], OPTIONS, "same")
        core.allow(10)
        text = await read(third)
        # The record of the second's end came while the third owned the id.
        with pytest.raises(StopAsyncIteration):
            await read_one(second)

    assert text == "three"


async def test_a_request_that_fails_in_the_core_fails_alone() -> None:
    core = FakeCore(["never said", "healthy"], failures={1: "its grammar is impossible"})

    async with Engine(core) as engine:
        first = engine.open_stream([1], OPTIONS)
        second = engine.open_stream([2], OPTIONS)
        with pytest.raises(RequestFailedError, match="its grammar is impossible"):
            await read(first)

        text = await read(second)

    assert text == "healthy"


async def test_the_engines_death_reaches_every_reader_and_the_scope() -> None:
    core = FakeCore([LONG], dies_at_step=3)
    deaths: list[EngineDeadError] = []

    async def reader(stream: DeltaStream) -> None:
        with pytest.raises(EngineDeadError, match="scripted failure") as caught:
            await read(stream)

        deaths.append(caught.value)

    async def scope() -> None:
        async with Engine(core) as engine, create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(reader, engine.open_stream([1], OPTIONS))

            await anyio.sleep_forever()

    with pytest.raises(EngineDeadError, match="scripted failure"):
        await scope()

    assert len(deaths) == 5
    assert len(set(map(id, deaths))) == 5
    assert core.is_closed


async def test_the_engines_death_is_one_error_for_the_reader_in_its_scope() -> None:
    engine = Engine(FakeCore([LONG], dies_at_step=3))

    with pytest.raises(EngineDeadError, match="scripted failure"):
        async with engine:
            await read(engine.open_stream([1], OPTIONS))

    with pytest.raises(EngineDeadError):
        engine.open_stream([1], OPTIONS)


async def test_an_unexpected_error_of_the_core_is_the_engines_death() -> None:
    core = FakeCore([LONG])

    def run() -> None:
        raise OSError("a bug")

    core.run = run  # type: ignore[method-assign]

    with pytest.raises(EngineDeadError, match="a bug") as caught:
        async with Engine(core):
            await anyio.sleep_forever()

    assert isinstance(caught.value.__cause__, OSError)


async def test_an_exception_in_the_scope_leaves_it_as_it_is() -> None:
    core = FakeCore([LONG], hand_stepped=True)
    engine = Engine(core)

    async def scope() -> None:
        async with engine:
            stream = engine.open_stream([1], OPTIONS)
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


async def test_a_group_of_exceptions_in_the_scope_stays_the_group_it_was() -> None:
    group = ExceptionGroup("mine", [ZeroDivisionError()])

    with pytest.raises(ExceptionGroup) as caught:
        async with Engine(FakeCore()):
            raise group

    assert (caught.value.message, caught.value.exceptions) == ("mine", group.exceptions)


async def test_leaving_the_scope_ends_the_streams_that_others_read() -> None:
    core = FakeCore([LONG], hand_stepped=True)

    async def reader(stream: DeltaStream) -> None:
        with pytest.raises(EngineClosedError):
            await read(stream)

    async with create_task_group() as tasks, Engine(core) as engine:
        tasks.start_soon(reader, engine.open_stream([1], OPTIONS))
        await wait_all_tasks_blocked()

    assert core.is_closed
    assert not core.is_running
    assert core.statistics().free_pages == core.statistics().total_pages


async def test_cancelling_the_owner_of_the_scope_stops_the_core() -> None:
    core = one_step()

    with CancelScope() as cancelled:
        async with Engine(core) as engine:
            stream = engine.open_stream([1], OPTIONS)
            await read_one(stream)
            cancelled.cancel()
            await anyio.sleep_forever()

    assert cancelled.cancelled_caught
    assert core.is_closed
    assert not core.is_running


async def test_a_scope_that_is_cancelled_at_once_stops_the_core() -> None:
    core = FakeCore([LONG])

    with CancelScope() as cancelled:
        cancelled.cancel()
        async with Engine(core):
            await checkpoint()

    assert core.is_closed
    assert not core.is_running


async def test_terminate_ends_waiting_readers_and_the_core() -> None:
    core = FakeCore([LONG], hand_stepped=True)

    async def reader(stream: DeltaStream) -> None:
        with pytest.raises(EngineClosedError):
            await read(stream)

    async with Engine(core) as engine, create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(reader, engine.open_stream([1], OPTIONS))

        await wait_all_tasks_blocked()
        engine.task.terminate()
        engine.task.terminate()

        assert not core.is_running
        assert core.is_closed
        with pytest.raises(EngineClosedError):
            engine.open_stream([1], OPTIONS)


async def test_terminate_works_from_another_thread() -> None:
    core = FakeCore([LONG], hand_stepped=True)

    async with Engine(core) as engine:
        stream = engine.open_stream([1], OPTIONS)
        await to_thread.run_sync(engine.task.terminate)

        assert not core.is_running
        with pytest.raises(EngineClosedError):
            await read(stream)


async def test_a_finished_answer_still_arrives_when_the_engine_terminates() -> None:
    core = FakeCore(["ab"])

    async with Engine(core) as engine:
        await wait_all_tasks_blocked()
        stream = engine.open_stream([1], OPTIONS)
        while core.statistics().steps < 3:
            pass  # The loop has no chance to deliver.

        engine.task.terminate()
        text = await read(stream)

    assert text == "ab"


async def test_a_started_engine_serves_until_terminate() -> None:
    core = FakeCore(["Hello!"])
    engine = Engine(core)
    engine.task.start()

    text = await read(engine.open_stream([1], OPTIONS))
    stream = engine.open_stream([1], OPTIONS)
    engine.task.terminate()

    assert text == "Hello!"
    assert not core.is_running
    assert core.is_closed
    with pytest.raises(EngineClosedError):
        await read(stream)


async def test_an_engine_that_is_terminated_before_its_task_began_does_not_run() -> None:
    core = FakeCore()
    engine = Engine(core)
    engine.task.start()
    engine.task.terminate()

    await wait_all_tasks_blocked()

    assert core.is_closed
    assert core.statistics().steps == 0
    assert not core.is_running


async def test_a_started_engine_that_dies_tells_its_readers_and_later_callers() -> None:
    engine = Engine(FakeCore([LONG], dies_at_step=2))
    engine.task.start()

    with pytest.raises(EngineDeadError, match="scripted failure"):
        await read(engine.open_stream([1], OPTIONS))

    with pytest.raises(EngineDeadError, match="scripted failure"):
        engine.open_stream([1], OPTIONS)


async def test_terminate_leaves_no_task_behind() -> None:
    engine = Engine(FakeCore([LONG], hand_stepped=True))
    engine.task.start()
    stream = engine.open_stream([1], OPTIONS)
    await wait_all_tasks_blocked()
    before = our_tasks()
    engine.task.terminate()
    while our_tasks():
        await checkpoint()

    assert before == {"aiomlc engine", "aiomlc steps"}
    with pytest.raises(EngineClosedError):
        await read(stream)


def test_no_thread_outlives_the_loop() -> None:
    before = set(threading.enumerate())

    async def main() -> None:
        async with Engine(FakeCore(["abc"])) as engine:
            await read(engine.open_stream([1], OPTIONS))
        engine = Engine(FakeCore([LONG]))
        engine.task.start()
        await read_one(engine.open_stream([1], OPTIONS))

    anyio.run(main)  # Trio keeps its idle threads for a while, to use them again.

    for thread in set(threading.enumerate()) - before:
        thread.join(5)  # It was told to end.
        assert not thread.is_alive()


@BACKENDS
def test_the_end_of_the_loop_ends_a_started_engine(backend: str) -> None:
    core = FakeCore([LONG])

    async def main() -> None:
        engine = Engine(core)
        engine.task.start()
        await read_one(engine.open_stream([1], OPTIONS))

    anyio.run(main, backend=backend)

    assert core.is_closed
    assert not core.is_running


@BACKENDS
def test_a_loop_that_ends_at_once_ends_a_started_engine(backend: str) -> None:
    core = FakeCore([LONG])

    async def main() -> None:
        Engine(core).task.start()
        await checkpoint()

    anyio.run(main, backend=backend)

    assert not core.is_running
    assert core.statistics().steps == 0


def test_two_engines_on_two_loops_do_not_disturb_each_other() -> None:
    async def serve(reply: str) -> list[str]:
        async with Engine(FakeCore([reply])) as engine:
            return [await read(engine.open_stream([1], OPTIONS)) for _ in range(20)]

    with start_blocking_portal("asyncio") as first, start_blocking_portal("trio") as second:
        futures = [first.start_task_soon(serve, "one"), second.start_task_soon(serve, "two")]
        texts = [future.result(10) for future in futures]

    assert texts == [["one"] * 20, ["two"] * 20]


async def test_an_engine_refuses_another_event_loop() -> None:
    async with Engine(FakeCore()) as engine:

        async def intrude() -> None:
            engine.open_stream([1], OPTIONS)

        def call() -> None:
            anyio.run(intrude)

        with pytest.raises(EngineClosedError, match="another event loop"):
            await to_thread.run_sync(call)


async def test_an_engine_that_does_not_serve_refuses_requests() -> None:
    engine = Engine(FakeCore())

    with pytest.raises(EngineClosedError):
        engine.open_stream([1], OPTIONS)


async def test_half_of_many_cancelled_streams_leave_no_page_behind() -> None:
    core = FakeCore(["x" * 200])

    async def reader(engine: Engine, index: int) -> None:
        async with engine.open_stream([index], OPTIONS) as stream:
            deltas = 0
            async for _ in stream:
                deltas += 1
                if index % 2 and deltas > index % 7:
                    return

    async with Engine(core) as engine:
        async with create_task_group() as tasks:
            for index in range(32):
                tasks.start_soon(reader, engine, index)

        await wait_until_free(core)

        assert core.statistics().free_pages == core.statistics().total_pages


def test_an_engine_describes_its_state() -> None:
    engine = Engine(FakeCore())

    before = repr(engine)
    engine.task.terminate()

    assert before == "<Engine open, 0 requests>"
    assert repr(engine) == "<Engine closed, 0 requests>"


async def test_a_core_that_fails_to_close_still_ends_every_reader() -> None:
    core = FakeCore([LONG], hand_stepped=True)
    engine = Engine(core)
    engine.task.start()
    stream = engine.open_stream([1], OPTIONS)

    def close() -> None:
        raise EngineDeadError("a page is lost")

    core.close = close  # type: ignore[method-assign]
    engine.task.terminate()

    with pytest.raises(EngineDeadError, match="a page is lost"):
        await read(stream)

    with pytest.raises(EngineDeadError, match="a page is lost"):
        engine.open_stream([1], OPTIONS)


async def test_an_engine_that_was_terminated_cannot_be_entered_or_started() -> None:
    engine = Engine(FakeCore())
    engine.task.terminate()

    with pytest.raises(EngineClosedError):
        engine.task.start()

    with pytest.raises(EngineClosedError):
        async with engine:
            pass


async def test_a_stream_describes_its_state() -> None:
    async with Engine(FakeCore(hand_stepped=True)) as engine:
        stream = engine.open_stream([1], OPTIONS, "mine")
        before = repr(stream)
        stream.close()

    assert (before, repr(stream)) == ("<DeltaStream 'mine' open>", "<DeltaStream 'mine' ended>")


class BrokenWatcher:
    """An observer that fails whenever it is told something."""

    def on_record(self, record: Record, choice: int) -> None:
        raise ValueError("an observer's mistake")

    def on_end(self, error: AiomlcError | None) -> None:
        raise ValueError("an observer's mistake")


async def test_an_observer_that_fails_disturbs_nobody(caplog: pytest.LogCaptureFixture) -> None:
    core = FakeCore(["Hello", "you"])
    async with Engine(core) as engine:
        watched = engine.open_stream([1], SequenceOptions(), observer=BrokenWatcher())
        other = engine.open_stream([2], SequenceOptions())
        texts = ["".join([delta.text async for delta in one]) for one in (watched, other)]
        left = engine.open_stream([1], SequenceOptions(), observer=BrokenWatcher())

    assert texts == ["Hello", "you"]
    with pytest.raises(EngineClosedError):
        await anext(left)

    assert core.is_released
    assert "an observer's mistake" in caplog.text


async def test_logging_that_fails_disturbs_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    class BrokenFilter(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            raise ValueError("a filter's mistake")

    log = logging.getLogger("aiomlc")
    broken, level = BrokenFilter(), log.level
    log.addFilter(broken)
    log.setLevel(logging.DEBUG)
    try:
        async with Engine(FakeCore(["Hello"])) as engine:
            text = "".join([d.text async for d in engine.open_stream([1], SequenceOptions())])
    finally:
        log.removeFilter(broken)
        log.setLevel(level)

    assert text == "Hello"
    assert "a filter's mistake" in capsys.readouterr().err
