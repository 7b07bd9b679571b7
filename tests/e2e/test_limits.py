"""Time limits, the queue and slow readers with the bundled model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from anyio import create_task_group, fail_after, sleep

from aiomlc import AsyncMLCEngine, DeadlineExceededError, EngineConfig, EngineOverloadedError

STORY = [{"role": "user", "content": "Tell me a story about a fox called Rosa."}]

# Long enough to be there still when the test has done what it does meanwhile.
LONG_STORY: dict[str, Any] = {
    "messages": STORY,
    "temperature": 0,
    "ignore_eos": True,
    "max_tokens": 1500,
}


async def wait_until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - there is no event for a core's counter.
        await sleep(0.001)


async def test_a_time_limit_ends_an_endless_answer_and_frees_its_pages() -> None:
    with fail_after(30):
        async with AsyncMLCEngine() as engine:
            with pytest.raises(DeadlineExceededError) as caught:
                await engine.chat.completions.create(messages=STORY, ignore_eos=True, timeout=0.05)

            answer = await engine.chat.completions.create(messages=STORY, max_tokens=5, timeout=60)
            statistics = engine.statistics()

    assert caught.value.limit == "timeout"
    assert answer.choices[0].finish_reason == "length"
    assert statistics.free_pages == statistics.total_pages


async def test_requests_too_many_are_refused_and_later_served() -> None:
    config = EngineConfig(max_num_sequence=1, max_queue_size=1)
    answers: list[str | None] = []
    refused = 0

    async def ask() -> None:
        nonlocal refused
        try:
            answer = await engine.chat.completions.create(**LONG_STORY)
            answers.append(answer.choices[0].message.content)
        except EngineOverloadedError:
            refused += 1

    with fail_after(60):
        async with AsyncMLCEngine(engine_config=config) as engine:
            await ask()
            async with create_task_group() as tasks:
                for _ in range(20):
                    tasks.start_soon(ask)
            await ask()

    assert refused > 0
    assert len(answers) == 22 - refused
    assert len(set(answers)) == 1


async def test_a_reader_that_pauses_reads_the_same_and_holds_up_nobody() -> None:
    config = EngineConfig(max_unread_tokens=20)
    options = LONG_STORY
    with fail_after(30):
        async with AsyncMLCEngine(engine_config=config) as engine:
            whole = await engine.chat.completions.create(**options)
            stream = await engine.chat.completions.create(**options, stream=True)
            await wait_until(lambda: engine.statistics().num_paused == 1)
            async with create_task_group() as tasks:
                for seed in range(8):
                    tasks.start_soon(_ask, engine, seed)

            assert engine.statistics().num_paused == 1
            text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    assert text == whole.choices[0].message.content


async def _ask(engine: AsyncMLCEngine, seed: int) -> None:
    await engine.chat.completions.create(messages=STORY, seed=seed, max_tokens=50)
