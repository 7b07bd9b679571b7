"""Streams that are awaited, iterated or entered, as `create(stream=True)` returns them."""

from __future__ import annotations

import asyncio  # noqa: TID251 - its tasks are tested.
import gc
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest
import trio
from anyio import (
    BusyResourceError,
    CancelScope,
    ClosedResourceError,
    Event,
    create_task_group,
    wait_all_tasks_blocked,
)

from aiomlc import AsyncMLCEngine, BadRequestError
from aiomlc.api.streams.pending_stream import PendingStream
from aiomlc.runtime.concurrency.receive_stream import ReceiveStream
from aiomlc.testing import FakeCore, fake_loader

pytestmark = pytest.mark.timeout(20)
HELLO = [{"role": "user", "content": "Hello"}]
Create = Callable[..., PendingStream[ReceiveStream[Any], Any]]

CREATES: dict[str, Callable[..., Any]] = {
    "chat": lambda engine, **options: engine.chat.completions.create(
        messages=HELLO, stream=True, **options
    ),
    "completions": lambda engine, **options: engine.completions.create(
        prompt="Hello", stream=True, **options
    ),
    "responses": lambda engine, **options: engine.responses.create(
        input="Hello", stream=True, **options
    ),
    "generate": lambda engine, **options: engine.generate("Hello", **options),
}


@pytest.fixture(params=list(CREATES.values()), ids=list(CREATES))
def create(request: pytest.FixtureRequest) -> Create:
    value: Create = request.param
    return value


@asynccontextmanager
async def serve(core: FakeCore) -> AsyncIterator[AsyncMLCEngine]:
    async with AsyncMLCEngine(loader=fake_loader(core)) as engine:
        yield engine


async def test_a_stream_that_is_closed_while_another_task_opens_it_stays_closed() -> None:
    may_open = Event()
    opened: list[ReceiveStream[Any]] = []

    async with serve(FakeCore(["abc"])) as engine:

        async def open_slowly() -> Any:  # noqa: ANN401
            await may_open.wait()
            opened.append(await engine.chat.completions.create(messages=HELLO, stream=True))
            return opened[0]

        pending: PendingStream[Any, Any] = PendingStream(open_slowly)

        async def use() -> None:
            with pytest.raises(ClosedResourceError):
                await pending

        async with create_task_group() as tasks:
            tasks.start_soon(use)
            await wait_all_tasks_blocked()
            pending.close()
            may_open.set()

        with pytest.raises(ClosedResourceError):
            await opened[0].receive()


async def test_awaiting_iterating_and_entering_give_the_same_items(create: Create) -> None:
    async with serve(FakeCore(["abc"])) as engine:
        awaited = [item async for item in await create(engine)]
        iterated = [item async for item in create(engine)]
        async with create(engine) as stream:
            entered = [item async for item in stream]

    types = [{type(item) for item in items} for items in (awaited, iterated, entered)]
    assert len(types[0]) > 0
    assert types[0] == types[1] == types[2]


async def test_an_unused_stream_submits_nothing_and_warns_of_nothing(create: Create) -> None:
    core = FakeCore()
    async with serve(core) as engine:
        create(engine)
        gc.collect()  # A warning of a coroutine that was never awaited would be an error.

    assert core.prompts == []


async def test_breaking_out_of_a_loop_cancels_the_request(create: Create) -> None:
    core = FakeCore(["x" * 100], hand_stepped=True)
    async with serve(core) as engine:
        core.allow(1)
        async for _ in create(engine):
            break

        gc.collect()
        assert core.cancelled == [1]


async def test_leaving_the_scope_cancels_the_request(create: Create) -> None:
    core = FakeCore(["x" * 100], hand_stepped=True)
    async with serve(core) as engine:
        for scope in (create(engine), aclosing(create(engine))):
            async with scope as stream:
                core.allow(10)
                await anext(stream)

    assert core.cancelled == [1, 2]


async def test_every_use_gives_the_same_stream(create: Create) -> None:
    async with serve(FakeCore(["abc"])) as engine:
        pending = create(engine)
        stream = await pending
        assert await pending is stream
        async with pending as entered:
            assert entered is stream
            await anext(pending)
            async for _ in stream:
                pass

            assert [item async for item in pending] == []


async def test_an_invalid_request_is_rejected_on_first_use(create: Create) -> None:
    core = FakeCore()
    async with serve(core) as engine:
        pending = create(engine, temperature=-1.0)
        with pytest.raises(BadRequestError):
            await pending

        with pytest.raises(ClosedResourceError):
            await pending

    assert core.prompts == []


async def test_a_stream_closed_before_its_first_use_submits_nothing(create: Create) -> None:
    core = FakeCore()
    async with serve(core) as engine:
        pending = create(engine)
        assert "pending" in repr(pending)
        await pending.aclose()
        assert "closed" in repr(pending)
        with pytest.raises(ClosedResourceError):
            await anext(pending)

    assert core.prompts == []


async def test_a_cancelled_first_use_submits_nothing(create: Create) -> None:
    core = FakeCore()
    async with serve(core) as engine:
        with CancelScope() as scope:
            scope.cancel()
            await create(engine)

    assert core.prompts == []


async def test_two_tasks_cannot_open_a_stream(create: Create) -> None:
    core = FakeCore(["abc"])

    async def open_it() -> None:
        try:
            await pending
        except BusyResourceError as error:
            errors.append(error)

    errors: list[BusyResourceError] = []
    async with serve(core) as engine:
        pending = create(engine)
        async with create_task_group() as tasks:
            tasks.start_soon(open_it)
            tasks.start_soon(open_it)

    assert len(errors) == 1
    assert len(core.prompts) == 1


async def test_for_and_with_explain_what_to_do(create: Create) -> None:
    async with serve(FakeCore()) as engine:
        with pytest.raises(TypeError, match="use `async for`"):
            list(create(engine))  # type: ignore[call-overload]

        with pytest.raises(TypeError, match="use `async with`"), create(engine):  # type: ignore[attr-defined]
            pass


async def test_a_task_group_runs_it_as_a_task(create: Create) -> None:
    core = FakeCore(["abc"], hand_stepped=True)
    async with serve(core) as engine:
        pending = create(engine)
        async with create_task_group() as tasks:
            tasks.start_soon(lambda: pending)
            await wait_all_tasks_blocked()

        assert len(core.prompts) == 1
        assert not (await pending)._is_closed


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("debug", [False, True])
async def test_asyncio_runs_it_as_a_task_and_cancels_it(create: Create, debug: bool) -> None:
    loop = asyncio.get_running_loop()
    loop.set_debug(debug)
    core = FakeCore(["abc"])
    async with serve(core) as engine:
        stream = await asyncio.create_task(create(engine))
        assert len([item async for item in stream]) > 0

        streams = await asyncio.gather(create(engine), asyncio.wait_for(create(engine), 5))
        assert len(streams) == 2

        task = asyncio.create_task(create(engine))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    assert len(core.prompts) == 3


@pytest.mark.parametrize("anyio_backend", ["trio"])
async def test_trio_runs_it_as_a_task(create: Create) -> None:
    core = FakeCore(["abc"])
    async with serve(core) as engine, trio.open_nursery() as nursery:
        nursery.start_soon(create, engine)

    assert len(core.prompts) == 1


async def test_without_stream_a_coroutine_is_returned() -> None:
    async with serve(FakeCore(["abc"])) as engine:
        completion = engine.chat.completions.create(messages=HELLO)
        assert asyncio.iscoroutine(completion)
        assert (await completion).choices[0].message.content == "abc"
        chunks: Any = await engine.chat.completions.create(
            messages=HELLO, extra_body={"stream": True}
        )
        assert len([chunk async for chunk in chunks]) > 1


async def test_a_forgotten_await_is_reported_with_the_name_of_the_method() -> None:
    async with serve(FakeCore()) as engine:
        forgotten = [engine.chat.completions.create(messages=HELLO)]
        with pytest.warns(RuntimeWarning, match=r"AsyncCompletions\._create"):
            forgotten.clear()
