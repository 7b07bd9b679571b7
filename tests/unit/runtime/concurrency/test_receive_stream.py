"""The contract of anyio's receive streams, for the streams of deltas, chunks and events."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any

import pytest
from anyio import (
    BusyResourceError,
    ClosedResourceError,
    EndOfStream,
    create_memory_object_stream,
    create_task_group,
    wait_all_tasks_blocked,
)
from anyio.abc import ObjectReceiveStream
from anyio.streams.stapled import StapledObjectStream

from aiomlc import AsyncMLCEngine
from aiomlc.runtime.concurrency.receive_stream import ReceiveStream
from aiomlc.runtime.engine.engine_client import EngineClient
from aiomlc.runtime.engine.prompt import Prompt
from aiomlc.testing import FakeCore, fake_loader
from tests.unit.runtime.engine.engine_helpers import OPTIONS

pytestmark = pytest.mark.timeout(20)
HELLO = [{"role": "user", "content": "Hello"}]
Opener = Callable[[FakeCore], AbstractAsyncContextManager[ReceiveStream[Any]]]


@asynccontextmanager
async def open_deltas(core: FakeCore) -> AsyncIterator[ReceiveStream[Any]]:
    async with EngineClient(core) as engine:
        yield engine.open_stream(Prompt([1]), OPTIONS)


@asynccontextmanager
async def open_public(
    create: Callable[[AsyncMLCEngine], Any], core: FakeCore
) -> AsyncIterator[ReceiveStream[Any]]:
    async with AsyncMLCEngine(loader=fake_loader(core)) as engine:
        yield await create(engine)


@asynccontextmanager
async def open_chat_events(core: FakeCore) -> AsyncIterator[ReceiveStream[Any]]:
    async with (
        AsyncMLCEngine(loader=fake_loader(core)) as engine,
        engine.chat.completions.stream(messages=HELLO) as events,
    ):
        yield events


OPENERS: dict[str, Opener] = {
    "deltas": open_deltas,
    "tokens": partial(open_public, lambda engine: engine.generate("Hello")),
    "chat": partial(
        open_public, lambda engine: engine.chat.completions.create(messages=HELLO, stream=True)
    ),
    "completions": partial(
        open_public, lambda engine: engine.completions.create(prompt="Hello", stream=True)
    ),
    "responses": partial(
        open_public, lambda engine: engine.responses.create(input="Hello", stream=True)
    ),
    "chat events": open_chat_events,
}


@pytest.fixture(params=list(OPENERS.values()), ids=list(OPENERS))
def opener(request: pytest.FixtureRequest) -> Opener:
    value: Opener = request.param
    return value


async def receive_all(stream: ObjectReceiveStream[Any]) -> list[Any]:
    items = []
    while True:
        try:
            items.append(await stream.receive())
        except EndOfStream:
            return items


def waiting_core() -> FakeCore:
    """Return a core that never takes a step."""
    return FakeCore(hand_stepped=True)


async def test_receive_returns_all_items_and_then_raises_end_of_stream(opener: Opener) -> None:
    async with opener(FakeCore(["Hello you"])) as stream:
        assert isinstance(stream, ObjectReceiveStream)
        assert len(await receive_all(stream)) > 0
        with pytest.raises(EndOfStream):
            await stream.receive()


async def test_receive_and_iteration_return_the_same_items(opener: Opener) -> None:
    async with opener(FakeCore(["abc"])) as stream:
        received = await receive_all(stream)

    async with opener(FakeCore(["abc"])) as stream:
        iterated = [item async for item in stream]

    assert {type(item) for item in received} == {type(item) for item in iterated}


async def test_a_closed_stream_raises_closed_resource_error_and_its_iteration_ends(
    opener: Opener,
) -> None:
    async with opener(waiting_core()) as stream:
        await stream.aclose()
        for _ in range(2):
            with pytest.raises(ClosedResourceError):
                await stream.receive()

        assert [item async for item in stream] == []


async def test_closing_after_the_end_raises_closed_resource_error(opener: Opener) -> None:
    async with opener(FakeCore(["abc"])) as stream:
        await receive_all(stream)
        await stream.aclose()
        with pytest.raises(ClosedResourceError):
            await stream.receive()


async def skip_what_is_ready(stream: ReceiveStream[Any], opener: Opener) -> None:
    if opener is OPENERS["responses"]:  # Its first two events precede the first token.
        await stream.receive()
        await stream.receive()


async def test_closing_ends_a_waiting_receive_with_closed_resource_error(opener: Opener) -> None:
    async def wait() -> None:
        with pytest.raises(ClosedResourceError):
            await stream.receive()

    async with opener(waiting_core()) as stream:
        await skip_what_is_ready(stream, opener)
        async with create_task_group() as tasks:
            tasks.start_soon(wait)
            await wait_all_tasks_blocked()
            await stream.aclose()


async def test_a_second_reader_gets_busy_resource_error(opener: Opener) -> None:
    async with opener(waiting_core()) as stream:
        await skip_what_is_ready(stream, opener)
        async with create_task_group() as tasks:
            tasks.start_soon(anext, stream, None)
            await wait_all_tasks_blocked()
            with pytest.raises(BusyResourceError):
                await stream.receive()

            stream.close()


async def test_anyio_staples_a_stream_to_a_send_stream(opener: Opener) -> None:
    sender, receiver = create_memory_object_stream[object](1)
    async with opener(FakeCore(["abc"])) as stream:
        async with StapledObjectStream(sender, stream) as stapled:
            assert len(await receive_all(stapled)) > 0

        with pytest.raises(ClosedResourceError):
            await stream.receive()

    receiver.close()


async def test_for_and_with_explain_what_to_do(opener: Opener) -> None:
    async with opener(waiting_core()) as stream:
        with pytest.raises(TypeError, match=r"use `async for`, or `MLCEngine`"):
            for _ in stream:  # type: ignore[attr-defined]
                pass

        with pytest.raises(TypeError, match=r"use `async with`, or `MLCEngine`"), stream:  # type: ignore[attr-defined]
            pass


async def test_statistics_of_a_stream_of_deltas() -> None:
    core = waiting_core()
    async with EngineClient(core, max_unread_tokens=2) as engine:
        stream = engine.open_stream(Prompt([1]), OPTIONS, num_choices=2)
        assert stream.statistics() == (0, 2, 1, 1, 0, 0)

        async with create_task_group() as tasks:
            tasks.start_soon(anext, stream)
            await wait_all_tasks_blocked()
            assert stream.statistics() == (0, 2, 1, 1, 0, 1)
            tasks.cancel_scope.cancel()

        core.allow(4)
        while len(core.paused) < 2:
            await wait_all_tasks_blocked()

        assert stream.statistics() == (2, 2, 1, 1, 2, 0)
        stream.close()
        assert stream.statistics()[:4] == (0, 2, 0, 0)


async def test_statistics_of_a_stream_of_chunks_count_unread_chunks_and_deltas() -> None:
    core = waiting_core()
    async with AsyncMLCEngine(loader=fake_loader(core)) as engine:
        stream = await engine.chat.completions.create(messages=HELLO, stream=True)
        assert stream.statistics() == (0, float("inf"), 1, 1, 0, 0)

        core.allow(100)
        await stream.receive()  # The first delta becomes more than one chunk.
        before = stream.statistics()
        num_read = len(await receive_all(stream))
        stream.close()

    assert 0 < before.current_buffer_used <= num_read
    assert stream.statistics() == (0, float("inf"), 0, 0, 0, 0)
