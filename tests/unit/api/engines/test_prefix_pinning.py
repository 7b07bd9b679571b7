"""Tests of `pin_prefix`."""

from __future__ import annotations

import time
from typing import Any

import pytest
from anyio import CancelScope, create_task_group, wait_all_tasks_blocked

from aiomlc import (
    AsyncMLCEngine,
    BadRequestError,
    EngineClosedError,
    MLCEngine,
    PinnedPrefix,
    PromptTooLongError,
    RequestAbortedError,
    RequestFailedError,
)
from aiomlc.testing import FakeCore, fake_loader

pytestmark = pytest.mark.timeout(20)
SYSTEM = [{"role": "system", "content": "Be brief."}]
HELLO = [*SYSTEM, {"role": "user", "content": "Hello"}]


async def test_messages_are_pinned_for_a_with_block() -> None:
    core = FakeCore()
    async with AsyncMLCEngine(loader=fake_loader(core)) as engine:
        with await engine.pin_prefix(SYSTEM) as prefix:
            assert core.pinned == {1}
            assert engine.statistics().num_pinned == 1
            assert repr(prefix) == f"<PinnedPrefix pinned, {len(core.prompts[0])} tokens>"
            await engine.chat.completions.create(messages=HELLO)

        assert core.pinned == set()
        prefix.release()

    pinned, prompt = core.prompts
    assert prompt[: len(pinned)] == pinned
    assert (core.options[0].is_pinned, core.options[0].max_tokens) == (True, 1)
    assert not core.options[1].is_pinned


@pytest.mark.parametrize("prompt", ["Once upon", list(b"Once upon")])
async def test_a_prompt_is_pinned_until_it_is_released(prompt: Any) -> None:  # noqa: ANN401
    core = FakeCore()
    async with AsyncMLCEngine(loader=fake_loader(core)) as engine:
        prefix = await engine.pin_prefix(prompt=prompt)
        assert (prefix.num_tokens, prefix.is_released, core.pinned) == (9, False, {1})

        prefix.release()
        assert (prefix.is_released, core.pinned) == (True, set())

    assert core.prompts == [list(b"Once upon")]


async def test_the_pinned_prefix_includes_the_tools() -> None:
    core = FakeCore()
    tools = [{"type": "function", "function": {"name": "look_up"}}]
    async with AsyncMLCEngine(loader=fake_loader(core)) as engine:
        await engine.pin_prefix(SYSTEM, tools=tools)
        await engine.chat.completions.create(messages=HELLO, tools=tools)

    pinned, prompt = core.prompts
    assert prompt[: len(pinned)] == pinned
    assert b"look_up" in bytes(pinned)


@pytest.mark.parametrize("fields", [{}, {"messages": SYSTEM, "prompt": "x"}])
async def test_messages_and_prompt_are_exclusive(fields: dict[str, Any]) -> None:
    async with AsyncMLCEngine(loader=fake_loader()) as engine:
        with pytest.raises(BadRequestError, match="either messages or a prompt") as caught:
            await engine.pin_prefix(**fields)

    assert caught.value.param == "prompt"


async def test_a_prefix_without_room_for_a_completion_is_rejected() -> None:
    async with AsyncMLCEngine(loader=fake_loader()) as engine:
        with pytest.raises(PromptTooLongError):
            await engine.pin_prefix(prompt="x" * 1024)


async def test_a_failed_prefix_is_not_pinned() -> None:
    core = FakeCore(failures={1: "impossible"})
    async with AsyncMLCEngine(loader=fake_loader(core)) as engine:
        with pytest.raises(RequestFailedError, match="impossible"):
            await engine.pin_prefix(SYSTEM)

    assert core.pinned == set()


async def test_a_cancelled_call_pins_nothing() -> None:
    core = FakeCore(hand_stepped=True)
    async with AsyncMLCEngine(loader=fake_loader(core)) as engine, create_task_group() as tasks:
        tasks.start_soon(engine.pin_prefix, SYSTEM)
        await wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()

    assert core.cancelled == [1]
    assert core.pinned == set()


async def test_a_call_that_is_cancelled_after_the_prefill_pins_nothing() -> None:
    core = FakeCore(hand_stepped=True)
    scope = CancelScope()

    async def pin() -> None:
        with scope:
            await engine.pin_prefix(SYSTEM)

    async with AsyncMLCEngine(loader=fake_loader(core)) as engine, create_task_group() as tasks:
        tasks.start_soon(pin)
        await wait_all_tasks_blocked()
        core.allow(1)
        while not core.pinned:  # Without yielding, so that delivery cannot run yet.
            time.sleep(0)  # noqa: ASYNC251
        scope.cancel()

    assert scope.cancelled_caught
    assert core.pinned == set()


async def test_reset_aborts_the_call_and_removes_pinned_prefixes() -> None:
    core = FakeCore(hand_stepped=True)
    async with AsyncMLCEngine(loader=fake_loader(core)) as engine, create_task_group() as tasks:
        core.allow(1)
        first = await engine.pin_prefix(SYSTEM)

        async def pin() -> None:
            with pytest.raises(RequestAbortedError):
                await engine.pin_prefix(SYSTEM)

        tasks.start_soon(pin)
        await wait_all_tasks_blocked()
        await engine.reset()
        assert core.pinned == set()

    first.release()


async def test_a_prefix_can_be_released_after_its_engine() -> None:
    async with AsyncMLCEngine(loader=fake_loader()) as engine:
        prefix = await engine.pin_prefix(SYSTEM)

    prefix.release()
    with pytest.raises(EngineClosedError):
        await engine.pin_prefix(SYSTEM)


def test_the_blocking_engine_pins_prefixes() -> None:
    core = FakeCore()
    with MLCEngine(loader=fake_loader(core)) as engine:
        with engine.pin_prefix(SYSTEM) as prefix:
            assert isinstance(prefix, PinnedPrefix)
            assert engine.statistics().num_pinned == 1

        assert engine.statistics().num_pinned == 0
        assert engine.pin_prefix(prompt="Once upon").num_tokens == 9
