"""Tests of request ids, aborts and failures of single requests."""

from __future__ import annotations

import pytest
from anyio import create_task_group, wait_all_tasks_blocked
from anyio.lowlevel import checkpoint

from aiomlc.errors import DuplicateRequestError, RequestAbortedError, RequestFailedError
from aiomlc.runtime.engine.engine_client import EngineClient
from aiomlc.runtime.engine.prompt import Prompt
from aiomlc.runtime.engine.request_table import _RECORDS_PER_DELIVERY, RequestTable
from aiomlc.testing import FakeCore
from tests.unit.runtime.engine.engine_helpers import (
    LONG_REPLY,
    OPTIONS,
    read,
    read_one,
    wait_until_free,
)

pytestmark = pytest.mark.timeout(20)


async def test_each_concurrent_stream_gets_its_reply() -> None:
    replies = [f"reply {index}" * 5 for index in range(32)]
    texts: dict[int, str] = {}

    async with EngineClient(FakeCore(replies)) as engine:

        async def reader(index: int) -> None:
            texts[index] = await read(engine.open_stream(Prompt([index]), OPTIONS))

        async with create_task_group() as tasks:
            for index in range(len(replies)):
                tasks.start_soon(reader, index)

    assert sorted(texts.values()) == sorted(replies)


async def test_abort_fails_only_its_request() -> None:
    core = FakeCore(["first", "second"], hand_stepped=True)
    errors: list[RequestAbortedError] = []

    async with EngineClient(core) as engine, create_task_group() as tasks:
        first = engine.open_stream(Prompt([1]), OPTIONS, "named")
        second = engine.open_stream(Prompt([2]), OPTIONS)

        async def reader() -> None:
            with pytest.raises(RequestAbortedError) as caught:
                await read(first)

            errors.append(caught.value)

        tasks.start_soon(reader)
        await wait_all_tasks_blocked()
        engine.abort("named")
        core.allow(100)
        second_text = await read(second)

    assert [error.request_id for error in errors] == ["named"]
    assert second_text == "second"
    assert core.cancelled == [1]


async def test_abort_delivers_earlier_deltas_first() -> None:
    core = FakeCore(["abc"], hand_stepped=True)

    async with (
        EngineClient(core) as engine,
        engine.open_stream(Prompt([1]), OPTIONS, "named") as stream,
    ):
        core.allow(1)
        while not stream._mailbox._unread:
            await checkpoint()

        engine.abort("named")
        delta = await read_one(stream)
        with pytest.raises(RequestAbortedError):
            await read_one(stream)

    assert delta.text == "a"


async def test_abort_of_an_unknown_or_finished_request_does_nothing() -> None:
    core = FakeCore(["abc"])

    async with EngineClient(core) as engine:
        engine.abort("unknown")
        await read(engine.open_stream(Prompt([1]), OPTIONS, "named"))
        engine.abort("named")

    assert core.cancelled == []


async def test_duplicate_live_request_id_is_rejected() -> None:
    core = FakeCore(["first"], hand_stepped=True)

    async with EngineClient(core) as engine:
        first = engine.open_stream(Prompt([1]), OPTIONS, "same")
        with pytest.raises(DuplicateRequestError) as caught:
            engine.open_stream(Prompt([2]), OPTIONS, "same")

        core.allow(100)
        text = await read(first)

    assert caught.value.request_id == "same"
    assert text == "first"
    assert core.prompts == [[1]]
    assert core.cancelled == []


async def test_default_request_id_never_equals_a_given_one() -> None:
    async with EngineClient(FakeCore(["abc"])) as engine:
        named = engine.open_stream(Prompt([1]), OPTIONS, "request-1")
        unnamed = engine.open_stream(Prompt([1]), OPTIONS)
        texts = [await read(named), await read(unnamed)]

    assert texts == ["abc", "abc"]
    assert named.request_id != unnamed.request_id


async def test_request_id_is_reusable_once_its_stream_finished_or_closed() -> None:
    core = FakeCore(["one", LONG_REPLY, "three"], hand_stepped=True)

    async with EngineClient(core) as engine:
        core.allow(10)
        await read(engine.open_stream(Prompt([1]), OPTIONS, "same"))
        second = engine.open_stream(Prompt([2]), OPTIONS, "same")
        second.close()
        third = engine.open_stream(Prompt([3]), OPTIONS, "same")
        core.allow(10)
        text = await read(third)
        # The final record of the second request arrived while the third one had the id.
        with pytest.raises(StopAsyncIteration):
            await read_one(second)

    assert text == "three"


async def test_failure_of_one_request_does_not_affect_others() -> None:
    core = FakeCore(["never generated", "healthy"], failures={1: "the grammar has no match"})

    async with EngineClient(core) as engine:
        first = engine.open_stream(Prompt([1]), OPTIONS)
        second = engine.open_stream(Prompt([2]), OPTIONS)
        with pytest.raises(RequestFailedError, match="the grammar has no match"):
            await read(first)

        text = await read(second)

    assert text == "healthy"


async def test_cancelled_and_finished_streams_free_their_pages() -> None:
    core = FakeCore(["x" * 200])

    async def reader(engine: EngineClient, index: int) -> None:
        async with engine.open_stream(Prompt([index]), OPTIONS) as stream:
            num_deltas = 0
            async for _ in stream:
                num_deltas += 1
                if index % 2 and num_deltas > index % 7:
                    return

    async with EngineClient(core) as engine:
        async with create_task_group() as tasks:
            for index in range(32):
                tasks.start_soon(reader, engine, index)

        await wait_until_free(core)

        assert core.statistics().free_pages == core.statistics().total_pages


async def test_a_delivery_has_a_limited_number_of_records() -> None:
    core = FakeCore(["a"])
    table = RequestTable(core, max_unread_tokens=1024)
    streams = [
        table.open_stream(Prompt([1]), OPTIONS, None, 1, None, None)
        for _ in range(_RECORDS_PER_DELIVERY)
    ]
    while core.step():
        pass

    deliveries = [table.deliver(), table.deliver(), table.deliver()]
    assert deliveries[-1] is False
    assert deliveries[0] is True
    assert [await read(stream) for stream in streams] == ["a"] * len(streams)
