"""Tests of reading, closing and dropping the stream of a request."""

from __future__ import annotations

import gc
import weakref
from contextlib import aclosing

import anyio
import pytest
from anyio import (
    CancelScope,
    create_task_group,
    wait_all_tasks_blocked,
)
from anyio.lowlevel import checkpoint

from aiomlc.errors import (
    AiomlcError,
    EngineClosedError,
)
from aiomlc.runtime.engine.core_protocol import Record
from aiomlc.runtime.engine.engine_client import EngineClient
from aiomlc.runtime.engine.prompt import Prompt
from aiomlc.testing import FakeCore
from tests.unit.runtime.engine.engine_helpers import (
    LONG_REPLY,
    OPTIONS,
    one_step_core,
    read,
    read_one,
    wait_until_free,
)

pytestmark = pytest.mark.timeout(20)


async def test_stream_yields_the_text_and_counts_of_its_sequence() -> None:
    core = FakeCore(["Hello!"])

    async with (
        EngineClient(core) as engine,
        engine.open_stream(Prompt([1, 2, 3]), OPTIONS) as stream,
    ):
        deltas = [delta async for delta in stream]

    assert "".join(delta.text for delta in deltas) == "Hello!"
    assert [token for delta in deltas for token in delta.token_ids] == list(map(ord, "Hello!"))
    assert deltas[-1][2:] == ("stop", 3, 6, (), 0, 0, None, ())


async def test_breaking_out_of_a_stream_cancels_only_its_request() -> None:
    core = FakeCore([LONG_REPLY, "survivor"], hand_stepped=True)

    async with EngineClient(core) as engine:
        async with engine.open_stream(Prompt([1]), OPTIONS) as stream:
            other = engine.open_stream(Prompt([2]), OPTIONS)
            core.allow(1)
            async for _ in stream:
                break

        core.allow(100)
        text = await read(other)

    assert text == "survivor"
    assert core.cancelled == [1]


async def test_aclosing_cancels_an_unfinished_stream() -> None:
    core = one_step_core()

    async with EngineClient(core) as engine:
        async with aclosing(engine.open_stream(Prompt([1]), OPTIONS)) as stream:
            await read_one(stream)

        await wait_until_free(core)

    assert core.cancelled == [1]


async def test_exception_in_the_reader_cancels_its_request() -> None:
    core = one_step_core()

    async with EngineClient(core) as engine:

        async def reader() -> None:
            async with engine.open_stream(Prompt([1]), OPTIONS) as stream:
                async for _ in stream:
                    raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await reader()

        await wait_until_free(core)

    assert core.cancelled == [1]


async def test_cancelling_a_waiting_reader_cancels_its_request() -> None:
    core = FakeCore([LONG_REPLY], hand_stepped=True)

    async with EngineClient(core) as engine, create_task_group() as tasks:
        tasks.start_soon(read, engine.open_stream(Prompt([1]), OPTIONS))
        await wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()

    assert core.cancelled == [1]


async def test_reader_in_a_cancelled_scope_cancels_its_request() -> None:
    core = one_step_core()

    async with EngineClient(core) as engine:
        with CancelScope() as scope:
            async with engine.open_stream(Prompt([1]), OPTIONS) as stream:
                async for _ in stream:
                    scope.cancel()

        assert core.cancelled == [1]


async def test_cancelled_read_loses_no_delta() -> None:
    core = FakeCore(["abc"], hand_stepped=True)
    text = ""

    async with EngineClient(core) as engine, engine.open_stream(Prompt([1]), OPTIONS) as stream:
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


async def test_garbage_collected_stream_cancels_its_request() -> None:
    core = one_step_core()

    async with EngineClient(core) as engine:
        stream = engine.open_stream(Prompt([1]), OPTIONS)
        await read_one(stream)
        reference = weakref.ref(stream)
        del stream
        gc.collect()

        assert reference() is None
        assert core.cancelled == [1]
        await wait_until_free(core)


async def test_finished_stream_cancels_nothing() -> None:
    core = FakeCore(["abc"])

    async with EngineClient(core) as engine:
        stream = engine.open_stream(Prompt([1]), OPTIONS)
        await read(stream)
        await stream.aclose()
        del stream
        gc.collect()

    assert core.cancelled == []


async def test_closed_stream_yields_nothing_more() -> None:
    async with EngineClient(one_step_core()) as engine:
        stream = engine.open_stream(Prompt([1]), OPTIONS)
        await read_one(stream)
        stream.close()

        with pytest.raises(StopAsyncIteration):
            await read_one(stream)


async def test_closing_from_another_task_ends_a_waiting_reader() -> None:
    core = FakeCore([LONG_REPLY], hand_stepped=True)

    async with EngineClient(core) as engine, create_task_group() as tasks:
        stream = engine.open_stream(Prompt([1]), OPTIONS)
        tasks.start_soon(read, stream)
        await wait_all_tasks_blocked()
        stream.close()

    assert core.cancelled == [1]


async def test_second_concurrent_reader_is_rejected() -> None:
    core = FakeCore([LONG_REPLY], hand_stepped=True)

    async with EngineClient(core) as engine, create_task_group() as tasks:
        stream = engine.open_stream(Prompt([1]), OPTIONS)
        tasks.start_soon(read, stream)
        await wait_all_tasks_blocked()

        with pytest.raises(anyio.BusyResourceError):
            await read_one(stream)

        stream.close()


async def test_unread_records_are_merged_into_one_delta() -> None:
    core = FakeCore([LONG_REPLY])

    async with EngineClient(core, max_unread_tokens=2 * len(LONG_REPLY)) as engine:
        stream = engine.open_stream(Prompt([1]), OPTIONS)
        await wait_until_free(core)
        while not stream._mailbox.ended:
            await checkpoint()

        delta = await read_one(stream)
        with pytest.raises(StopAsyncIteration):
            await read_one(stream)

    assert delta.text == LONG_REPLY
    assert len(delta.token_ids) == len(LONG_REPLY)
    assert (delta.finish_reason, delta.completion_tokens) == ("stop", len(LONG_REPLY))


async def test_repr_of_a_stream_shows_its_state() -> None:
    async with EngineClient(FakeCore(hand_stepped=True)) as engine:
        stream = engine.open_stream(Prompt([1]), OPTIONS, "named")
        before = repr(stream)
        stream.close()

    assert (before, repr(stream)) == ("<DeltaStream 'named' open>", "<DeltaStream 'named' ended>")


class FailingObserver:
    """An observer that raises an exception in every call."""

    def on_record(self, record: Record, choice: int) -> None:
        raise ValueError("deliberate observer failure")

    def on_end(self, error: AiomlcError | None) -> None:
        raise ValueError("deliberate observer failure")


async def test_failing_observer_is_logged_and_affects_no_request(
    caplog: pytest.LogCaptureFixture,
) -> None:
    core = FakeCore(["Hello", "you"], hand_stepped=True)
    async with EngineClient(core) as engine:
        observed = engine.open_stream(Prompt([1]), OPTIONS, observer=FailingObserver())
        other = engine.open_stream(Prompt([2]), OPTIONS)
        core.allow(len("Hello") + 1)  # With the end; and none for the last stream.
        texts = ["".join([delta.text async for delta in stream]) for stream in (observed, other)]
        unread = engine.open_stream(Prompt([1]), OPTIONS, observer=FailingObserver())

    assert texts == ["Hello", "you"]
    with pytest.raises(EngineClosedError):
        await anext(unread)

    assert core.is_released
    assert "deliberate observer failure" in caplog.text
