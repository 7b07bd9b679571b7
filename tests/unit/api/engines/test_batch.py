"""Tests of `AsyncMLCEngine.generate_many`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from anyio import get_running_tasks, wait_all_tasks_blocked

from aiomlc import AsyncMLCEngine
from aiomlc.api.protocol.chat import ChatCompletion
from aiomlc.errors import (
    BadRequestError,
    EngineDeadError,
    EngineOverloadedError,
    PromptTooLongError,
    RequestFailedError,
)
from aiomlc.testing import FakeCore, fake_loader

pytestmark = pytest.mark.timeout(20)


def text_of(completion: ChatCompletion | None) -> str | None:
    return None if completion is None else completion.choices[0].message.content


async def test_every_prompt_has_a_result() -> None:
    core = FakeCore(["Hi!"])
    prompts = [f"{number}" for number in range(10)]
    async with (
        AsyncMLCEngine(loader=fake_loader(core)) as engine,
        engine.generate_many(prompts, limit=3, max_tokens=2) as results,
    ):
        received = [(result.position, text_of(result.completion)) async for result in results]

    assert sorted(received) == [(position, "Hi") for position in range(10)]


async def test_results_cannot_be_read_without_a_scope() -> None:
    async with AsyncMLCEngine(loader=fake_loader(FakeCore())) as engine:
        batch: Any = engine.generate_many(["a"])
        usage = "write `async with engine.generate_many(...) as results:`, and iterate inside"
        with pytest.raises(BadRequestError, match=re.escape(usage)):
            aiter(batch)
        with pytest.raises(BadRequestError, match=re.escape(usage)):
            await batch
        with pytest.raises(BadRequestError, match=re.escape(usage)):
            list(batch)
        with pytest.raises(TypeError, match="use `async with`"):
            batch.__enter__()


async def test_no_more_workers_than_prompts_are_started() -> None:
    core = FakeCore(["Hi!"], hand_stepped=True)
    async with AsyncMLCEngine(loader=fake_loader(core)) as engine:
        async with engine.generate_many(["a", "b"], limit=50) as results:
            names = [task.name or "" for task in get_running_tasks()]
            assert len([name for name in names if "_run_batch" in name]) == 2
            core.allow(1000)
            assert len([result async for result in results]) == 2

        async with engine.generate_many([]) as results:
            assert [result async for result in results] == []


async def test_a_prompt_may_be_a_conversation() -> None:
    core = FakeCore(["Hi!"])
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    async with (
        AsyncMLCEngine(loader=fake_loader(core)) as engine,
        engine.generate_many([messages]) as results,
    ):
        received = [text_of(completion) async for _, completion, _ in results]

    assert received == ["Hi!"]


async def test_the_error_of_an_invalid_prompt_is_its_result() -> None:
    async with (
        AsyncMLCEngine(loader=fake_loader(FakeCore(["Hi!"]))) as engine,
        engine.generate_many(["a", "\ud800", "c"]) as results,
    ):
        received = {
            position: (text_of(completion), error) async for position, completion, error in results
        }

    error = received[1][1]
    assert isinstance(error, BadRequestError)
    assert error.param == "messages[0].content"
    assert (received[0], received[2]) == (("Hi!", None), ("Hi!", None))


async def test_results_are_yielded_as_requests_finish() -> None:
    prompts = ["a long one", "short"]
    core = FakeCore(lambda ids: "x" * 100 if len(ids) > 56 else "y", hand_stepped=True)
    positions = []
    async with (
        AsyncMLCEngine(loader=fake_loader(core)) as engine,
        engine.generate_many(prompts) as results,
    ):
        while len(core.prompts) < 2:
            await wait_all_tasks_blocked()
        core.allow(2)
        async for result in results:
            positions.append(result.position)
            core.allow(100)

    assert positions == [1, 0]


async def test_the_limit_bounds_running_requests_and_prompts_read() -> None:
    core = FakeCore(["x" * 100], hand_stepped=True)
    num_read = 0

    def prompts() -> Iterator[str]:
        nonlocal num_read
        while True:
            num_read += 1
            yield "again"

    async with AsyncMLCEngine(loader=fake_loader(core)) as engine:
        async with engine.generate_many(prompts(), limit=4):
            while len(core.prompts) < 4:
                await wait_all_tasks_blocked()

        assert num_read == 4
        assert sorted(core.cancelled) == [1, 2, 3, 4]


async def test_the_error_of_a_request_is_the_result_of_its_prompt() -> None:
    core = FakeCore(["Hi!"], failures={1: "impossible"})
    async with (
        AsyncMLCEngine(loader=fake_loader(core)) as engine,
        engine.generate_many(["a", "x" * 2000, "b"], limit=1) as results,
    ):
        received = [result async for result in results]

    assert [text_of(result.completion) for result in received] == [None, None, "Hi!"]
    assert isinstance(received[0].error, RequestFailedError)
    assert isinstance(received[1].error, PromptTooLongError)
    assert received[2].error is None


async def test_the_failure_of_the_engine_is_raised_without_a_group() -> None:
    async def run() -> None:
        async with (
            AsyncMLCEngine(loader=fake_loader(replies=["abc"], dies_at_step=2)) as engine,
            engine.generate_many(["a", "b", "c"]) as results,
        ):
            async for _ in results:
                pass

    with pytest.raises(EngineDeadError):
        await run()


async def test_an_error_of_the_body_is_raised_without_a_group() -> None:
    async with AsyncMLCEngine(loader=fake_loader(hand_stepped=True)) as engine:
        with pytest.raises(KeyError):
            async with engine.generate_many(["a", "b"]):
                raise KeyError


async def test_a_limit_of_0_is_rejected() -> None:
    async with AsyncMLCEngine(loader=fake_loader()) as engine:
        with pytest.raises(BadRequestError, match="limit must be a positive integer, got 0"):
            async with engine.generate_many(["a"], limit=0):
                pass


async def test_requests_wait_for_a_full_queue() -> None:
    core = FakeCore(["Hi!"], max_live=2)
    async with (
        AsyncMLCEngine(loader=fake_loader(core)) as engine,
        engine.generate_many(["a"] * 20, limit=8) as results,
    ):
        positions = [position async for position, completion, _ in results if completion]

    assert sorted(positions) == list(range(20))


async def test_a_request_that_no_queue_has_room_for_fails_alone() -> None:
    core = FakeCore(["Hi!"], max_live=0)
    async with (
        AsyncMLCEngine(loader=fake_loader(core)) as engine,
        engine.generate_many(["a", "b"], n=3) as results,
    ):
        errors = [error async for _, _, error in results]

    assert [type(error) for error in errors] == [EngineOverloadedError] * 2
