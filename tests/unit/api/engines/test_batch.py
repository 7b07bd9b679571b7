"""Many prompts, some at a time, and what becomes of each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from anyio import get_running_tasks, wait_all_tasks_blocked

from aiomlc import AsyncMLCEngine
from aiomlc.api.protocol.chat import ChatCompletion
from aiomlc.errors import BadRequestError, EngineDeadError, PromptTooLongError, RequestFailedError
from aiomlc.testing import FakeCore, fake_loader

pytestmark = pytest.mark.timeout(20)


def text_of(completion: ChatCompletion | None) -> str | None:
    return None if completion is None else completion.choices[0].message.content


async def test_every_prompt_has_an_outcome() -> None:
    core = FakeCore(["Hi!"])
    prompts = [f"{number}" for number in range(10)]
    async with (
        AsyncMLCEngine(loader=fake_loader(core)) as engine,
        engine.generate_many(prompts, limit=3, max_tokens=2) as outcomes,
    ):
        seen = [(outcome.position, text_of(outcome.completion)) async for outcome in outcomes]

    assert sorted(seen) == [(position, "Hi") for position in range(10)]


async def test_a_high_limit_costs_no_task_that_has_nothing_to_do() -> None:
    core = FakeCore(["Hi!"], hand_stepped=True)
    async with AsyncMLCEngine(loader=fake_loader(core)) as engine:
        async with engine.generate_many(["a", "b"], limit=50) as outcomes:
            names = [task.name or "" for task in get_running_tasks()]
            assert len([name for name in names if "run_batch" in name]) == 2
            core.allow(1000)
            assert len([outcome async for outcome in outcomes]) == 2

        async with engine.generate_many([]) as outcomes:
            assert [outcome async for outcome in outcomes] == []


async def test_a_prompt_may_be_a_conversation() -> None:
    core = FakeCore(["Hi!"])
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    async with (
        AsyncMLCEngine(loader=fake_loader(core)) as engine,
        engine.generate_many([messages]) as outcomes,
    ):
        seen = [text_of(completion) async for _, completion, _ in outcomes]

    assert seen == ["Hi!"]


async def test_a_prompt_that_is_no_text_is_an_outcome_and_disturbs_no_other() -> None:
    async with (
        AsyncMLCEngine(loader=fake_loader(FakeCore(["Hi!"]))) as engine,
        engine.generate_many(["a", "\ud800", "c"]) as outcomes,
    ):
        seen = {position: (text_of(answer), error) async for position, answer, error in outcomes}

    refused = seen[1][1]
    assert isinstance(refused, BadRequestError)
    assert refused.param == "messages[0].content"
    assert (seen[0], seen[2]) == (("Hi!", None), ("Hi!", None))


async def test_short_answers_are_told_before_long_ones() -> None:
    prompts = ["a long one", "short"]
    core = FakeCore(lambda ids: "x" * 100 if len(ids) > 56 else "y", hand_stepped=True)
    positions = []
    async with (
        AsyncMLCEngine(loader=fake_loader(core)) as engine,
        engine.generate_many(prompts) as outcomes,
    ):
        while len(core.prompts) < 2:
            await wait_all_tasks_blocked()
        core.allow(2)
        async for outcome in outcomes:
            positions.append(outcome.position)
            core.allow(100)

    assert positions == [1, 0]


async def test_no_more_than_the_limit_run_and_no_more_prompts_are_read() -> None:
    core = FakeCore(["x" * 100], hand_stepped=True)
    read = 0

    def prompts() -> Iterator[str]:
        nonlocal read
        while True:
            read += 1
            yield "again"

    async with AsyncMLCEngine(loader=fake_loader(core)) as engine:
        async with engine.generate_many(prompts(), limit=4):
            while len(core.prompts) < 4:
                await wait_all_tasks_blocked()

        assert read == 4
        assert sorted(core.cancelled) == [1, 2, 3, 4]


async def test_an_error_of_one_prompt_is_its_outcome() -> None:
    core = FakeCore(["Hi!"], failures={1: "impossible"})
    async with (
        AsyncMLCEngine(loader=fake_loader(core)) as engine,
        engine.generate_many(["a", "x" * 2000, "b"], limit=1) as outcomes,
    ):
        seen = [outcome async for outcome in outcomes]

    assert [text_of(outcome.completion) for outcome in seen] == [None, None, "Hi!"]
    assert isinstance(seen[0].error, RequestFailedError)
    assert isinstance(seen[1].error, PromptTooLongError)
    assert seen[2].error is None


async def test_the_engines_death_is_raised_as_it_is() -> None:
    async def run() -> None:
        async with (
            AsyncMLCEngine(loader=fake_loader(replies=["abc"], dies_at_step=2)) as engine,
            engine.generate_many(["a", "b", "c"]) as outcomes,
        ):
            async for _ in outcomes:
                pass

    with pytest.raises(EngineDeadError):
        await run()


async def test_an_error_of_the_body_is_raised_as_it_is() -> None:
    async with AsyncMLCEngine(loader=fake_loader(hand_stepped=True)) as engine:
        with pytest.raises(KeyError):
            async with engine.generate_many(["a", "b"]):
                raise KeyError


async def test_a_limit_of_nothing_is_refused() -> None:
    async with AsyncMLCEngine(loader=fake_loader()) as engine:
        with pytest.raises(BadRequestError, match="limit is 0"):
            async with engine.generate_many(["a"], limit=0):
                pass
