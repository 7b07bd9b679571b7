"""Cancellation, abort and failure of chat requests."""

from __future__ import annotations

import pytest
from anyio import create_task_group, wait_all_tasks_blocked

from aiomlc.api.chat.aggregate import aggregate
from aiomlc.errors import DuplicateRequestError, RequestAbortedError, RequestFailedError
from aiomlc.testing import FakeCore
from tests.unit.api.chat.serving import HELLO, serve

pytestmark = pytest.mark.timeout(20)


async def test_leaving_a_stream_early_cancels_its_request() -> None:
    core = FakeCore(["x" * 100], hand_stepped=True)

    async with serve(core) as engine:
        stream = await engine.chat.completions.create(messages=HELLO, stream=True)
        core.allow(1)
        async for _ in stream:
            break

        await stream.aclose()
        await stream.aclose()

        assert core.cancelled == [1]
        with pytest.raises(StopAsyncIteration):
            await stream.__anext__()


async def test_cancelling_a_non_streamed_completion_cancels_its_request() -> None:
    core = FakeCore(["x" * 100], hand_stepped=True)

    async with serve(core) as engine, create_task_group() as tasks:

        async def ask() -> None:
            await engine.chat.completions.create(messages=HELLO)

        tasks.start_soon(ask)
        while not core.prompts:
            await wait_all_tasks_blocked()

        tasks.cancel_scope.cancel()

    assert core.cancelled == [1]


async def test_create_in_a_cancelled_scope_submits_nothing() -> None:
    core = FakeCore()

    async with serve(core) as engine, create_task_group() as tasks:
        tasks.cancel_scope.cancel()
        await engine.chat.completions.create(messages=HELLO)

    assert core.prompts == []


async def test_abort_ends_only_the_request_with_that_id() -> None:
    core = FakeCore(["x" * 100], hand_stepped=True)

    async with serve(core) as engine:
        stream = await engine.chat.completions.create(
            messages=HELLO, stream=True, request_id="mine"
        )
        await engine.abort("unknown")
        await engine.abort("mine")

        with pytest.raises(RequestAbortedError):
            await stream.__anext__()


async def test_the_id_of_a_running_request_is_rejected() -> None:
    core = FakeCore(["first"], hand_stepped=True)

    async with serve(core) as engine:
        stream = await engine.chat.completions.create(
            messages=HELLO, stream=True, request_id="same"
        )
        with pytest.raises(DuplicateRequestError):
            await engine.chat.completions.create(messages=HELLO, request_id="same")

        core.allow(100)
        completion = await aggregate(stream)

    assert completion.choices[0].message.content == "first"


async def test_a_failure_in_the_core_is_raised_with_its_reason() -> None:
    async with serve(FakeCore(failures={1: "impossible"})) as engine:
        with pytest.raises(RequestFailedError, match="impossible"):
            await engine.chat.completions.create(messages=HELLO)
