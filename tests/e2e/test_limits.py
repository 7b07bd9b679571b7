"""Time limits, the queue limit and slow readers with the bundled model."""

from __future__ import annotations

from typing import Any

import pytest
from anyio import create_task_group, fail_after

from aiomlc import AsyncMLCEngine, DeadlineExceededError, EngineConfig, EngineOverloadedError
from tests.e2e.waiting import wait_until

STORY = [{"role": "user", "content": "Tell me a story about a fox called Rosa."}]

# Long enough to still run while the test checks it.
LONG_STORY: dict[str, Any] = {
    "messages": STORY,
    "temperature": 0,
    "ignore_eos": True,
    "max_tokens": 1500,
}


async def test_timeout_ends_an_endless_request_and_frees_its_pages() -> None:
    with fail_after(30):
        async with AsyncMLCEngine() as engine:
            with pytest.raises(DeadlineExceededError) as caught:
                await engine.chat.completions.create(messages=STORY, ignore_eos=True, timeout=0.05)

            completion = await engine.chat.completions.create(
                messages=STORY, max_tokens=5, timeout=60
            )
            statistics = engine.statistics()

    assert caught.value.limit == "timeout"
    assert completion.choices[0].finish_reason == "length"
    assert statistics.free_pages == statistics.total_pages


async def test_requests_beyond_the_queue_limit_are_rejected_and_later_served() -> None:
    config = EngineConfig(max_num_sequence=1, max_queue_size=1)
    texts: list[str | None] = []
    num_rejected = 0

    async def complete() -> None:
        nonlocal num_rejected
        try:
            completion = await engine.chat.completions.create(**LONG_STORY)
            texts.append(completion.choices[0].message.content)
        except EngineOverloadedError:
            num_rejected += 1

    with fail_after(60):
        async with AsyncMLCEngine(engine_config=config) as engine:
            await complete()
            async with create_task_group() as tasks:
                for _ in range(20):
                    tasks.start_soon(complete)
            await complete()

    assert num_rejected > 0
    assert len(texts) == 22 - num_rejected
    assert len(set(texts)) == 1


async def test_paused_stream_resumes_with_the_same_text_and_delays_no_other() -> None:
    config = EngineConfig(max_unread_tokens=20)
    options = LONG_STORY
    with fail_after(30):
        async with AsyncMLCEngine(engine_config=config) as engine:
            completion = await engine.chat.completions.create(**options)
            stream = await engine.chat.completions.create(**options, stream=True)
            await wait_until(lambda: engine.statistics().num_paused == 1)
            async with create_task_group() as tasks:
                for seed in range(8):
                    tasks.start_soon(_complete, engine, seed)

            assert engine.statistics().num_paused == 1
            text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    assert text == completion.choices[0].message.content


async def _complete(engine: AsyncMLCEngine, seed: int) -> None:
    await engine.chat.completions.create(messages=STORY, seed=seed, max_tokens=50)
