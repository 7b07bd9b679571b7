"""No request delays the other tasks of the event loop: each turn of it is short."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from anyio import create_task_group, sleep
from anyio.lowlevel import checkpoint

from aiomlc import AsyncMLCEngine, BadRequestError
from tests.plugins.loop_watchdog import MAX_TURN, LoopWatch, loop_watch

__all__ = ("loop_watch",)

pytestmark = pytest.mark.timeout(120)
MESSAGES = [{"role": "user", "content": "Tell me a long story."}]
LONG: dict[str, Any] = {"max_tokens": 60, "min_tokens": 50}


@pytest.fixture
async def engine() -> AsyncIterator[AsyncMLCEngine]:
    async with AsyncMLCEngine() as opened:
        await opened.chat.completions.create(messages=MESSAGES, max_tokens=1)
        yield opened


async def _stream(engine: AsyncMLCEngine, seconds: float) -> None:
    options = {"logprobs": True, "top_logprobs": 20, **LONG}
    async for _ in engine.chat.completions.create(messages=MESSAGES, stream=True, **options):
        await sleep(seconds)


async def _answer(engine: AsyncMLCEngine, _: float) -> None:
    options = {"logprobs": True, "top_logprobs": 20, **LONG}
    await engine.chat.completions.create(messages=MESSAGES, n=2, **options)


async def _complete(engine: AsyncMLCEngine, _: float) -> None:
    await engine.completions.create(prompt="Once", logprobs=20, n=2, **LONG)


async def _score(engine: AsyncMLCEngine, _: float) -> None:
    prompt = "fox " * 900
    options: dict[str, Any] = {"prompt": prompt, "max_tokens": 2, "prompt_logprobs": 20}
    answer = await engine.completions.create(**options, echo=True, logprobs=20)
    chunks = [chunk async for chunk in engine.completions.create(**options, stream=True)]
    first = answer.choices[0]
    assert first.logprobs is not None
    number = len(first.prompt_logprobs or ())
    assert len(chunks[0].choices[0].prompt_logprobs or ()) == number
    assert len(first.logprobs.tokens) > number > 1000


async def _score_chat(engine: AsyncMLCEngine, _: float) -> None:
    messages = [{"role": "user", "content": "fox " * 900}]
    answer = await engine.chat.completions.create(
        messages=messages, max_tokens=2, prompt_logprobs=20
    )
    assert answer.prompt_logprobs is not None
    assert len(answer.prompt_logprobs) > 1000


async def _submit(engine: AsyncMLCEngine, _: float) -> None:
    await engine.chat.completions.create(messages=MESSAGES, max_tokens=1)


async def _refuse(engine: AsyncMLCEngine, _: float) -> None:
    fields: Any = {"messages": MESSAGES, **{f"k{index}": index for index in range(300)}}
    with pytest.raises(BadRequestError, match="at most 256 fields"):
        await engine.chat.completions.create(**fields)


@pytest.mark.parametrize(
    ("task", "number", "seconds"),
    [
        (_stream, 64, 0),
        (_stream, 64, 0.2),
        (_answer, 32, 0),
        (_complete, 32, 0),
        (_score, 4, 0),
        (_score_chat, 4, 0),
        (_submit, 200, 0),
        (_refuse, 50, 0),
    ],
    ids=[
        "readers",
        "slow readers",
        "answers",
        "completions",
        "prompts",
        "chat prompts",
        "submissions",
        "refusals",
    ],
)
async def test_many_requests_at_once_share_the_loop(
    engine: AsyncMLCEngine,
    task: Any,  # noqa: ANN401 - of the functions above.
    number: int,
    seconds: float,
) -> None:
    async with create_task_group() as tasks:
        for _ in range(number):
            tasks.start_soon(task, engine, seconds)


@pytest.mark.blocks_loop("shows that the watchdog sees it")
async def test_the_watchdog_sees_a_blocked_loop() -> None:
    watch = LoopWatch()
    async with create_task_group() as tasks:
        tasks.start_soon(watch.run)
        for _ in range(3):
            await checkpoint()

        end = time.thread_time() + 2 * MAX_TURN
        while time.thread_time() < end:
            pass

        for _ in range(3):
            await checkpoint()

        tasks.cancel_scope.cancel()

    assert watch.longest >= 2 * MAX_TURN
