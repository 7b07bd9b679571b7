"""What users of other engines complain about most; docs/reliability.md has the list."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from random import Random
from typing import Any

import anyio
import pytest
from anyio import create_task_group, fail_after, move_on_after, sleep

from aiomlc import (
    AsyncMLCEngine,
    EngineConfig,
    EngineDeadError,
    GrammarError,
    ModelLoadError,
)
from aiomlc.testing import FakeCore, fake_loader

STORY: dict[str, Any] = {
    "messages": [{"role": "user", "content": "Tell me a story about a fox called Rosa."}],
    "max_tokens": 200,
}
# Pages for four stories.
SMALL = EngineConfig(max_total_sequence_length=4 * 224, max_single_sequence_length=448)


async def test_sixty_four_streams_with_room_for_four_all_finish() -> None:
    reasons: list[str | None] = []

    async def read(engine: AsyncMLCEngine, seed: int) -> None:
        stream = await engine.chat.completions.create(**STORY, seed=seed, stream=True)
        reasons.append([chunk.choices[0].finish_reason async for chunk in stream][-1])

    with fail_after(60):
        async with AsyncMLCEngine(engine_config=SMALL) as engine, create_task_group() as tasks:
            for seed in range(64):
                tasks.start_soon(read, engine, seed)

    assert len(reasons) == 64
    assert set(reasons) <= {"stop", "length"}


async def test_cancelling_half_at_random_moments_frees_every_page() -> None:
    finished: list[int] = []

    async def ask(engine: AsyncMLCEngine, seed: int) -> None:
        patience = Random(seed).random() * 0.05 if seed % 2 else 60
        with move_on_after(patience) as scope:
            await engine.chat.completions.create(**STORY, seed=seed)

        if not scope.cancelled_caught:
            finished.append(seed)

    with fail_after(60):
        async with AsyncMLCEngine(engine_config=SMALL) as engine:
            async with create_task_group() as tasks:
                for seed in range(64):
                    tasks.start_soon(ask, engine, seed)

            assert await engine.drain(timeout=20)
            statistics = engine.statistics()

    assert {seed for seed in finished if seed % 2 == 0} == set(range(0, 64, 2))
    assert statistics.free_pages == statistics.total_pages


async def test_an_impossible_grammar_fails_alone() -> None:
    answers: list[str | None] = []

    async def ask(engine: AsyncMLCEngine, seed: int) -> None:
        answer = await engine.chat.completions.create(**STORY, seed=seed)
        answers.append(answer.choices[0].finish_reason)

    async def ask_the_impossible(engine: AsyncMLCEngine) -> None:
        schema = {"type": "string", "minLength": 3, "maxLength": 2}
        with pytest.raises(GrammarError):
            await engine.chat.completions.create(
                **STORY, response_format={"type": "json_object", "schema": schema}
            )

    with fail_after(60):
        async with AsyncMLCEngine() as engine, create_task_group() as tasks:
            for seed in range(8):
                tasks.start_soon(ask, engine, seed)
                tasks.start_soon(ask_the_impossible, engine)

    assert len(answers) == 8


async def test_twenty_alternatives_are_told() -> None:
    async with AsyncMLCEngine() as engine:
        answer = await engine.chat.completions.create(
            **{**STORY, "max_tokens": 5}, logprobs=True, top_logprobs=20
        )

    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert [len(entry.top_logprobs) for entry in logprobs.content] == [20] * 5


async def ask_ten_times() -> list[str | None]:
    texts = []
    async with AsyncMLCEngine() as engine:
        for seed in range(10):
            answer = await engine.chat.completions.create(**STORY, seed=seed)
            texts.append(answer.choices[0].message.content)

    return texts


def test_two_engines_serve_two_kinds_of_event_loops_at_once() -> None:
    with ThreadPoolExecutor(2) as threads:
        runs = [
            threads.submit(partial(anyio.run, ask_ten_times, backend=backend))
            for backend in ("asyncio", "trio")
        ]
        one, other = (run.result(timeout=60) for run in runs)

    assert len(one) == 10
    assert one == other


async def test_a_reader_that_never_reads_costs_a_bounded_number_of_tokens() -> None:
    config = EngineConfig(max_unread_tokens=50)
    endless: dict[str, Any] = {**STORY, "ignore_eos": True, "max_tokens": 1900}
    with fail_after(60):
        async with AsyncMLCEngine(engine_config=config) as engine:
            stream = await engine.chat.completions.create(**endless, stream=True)
            while engine.statistics().num_paused == 0:  # noqa: ASYNC110 - a core's counter.
                await sleep(0.001)

            made = engine.statistics().completion_tokens
            await engine.chat.completions.create(**STORY, seed=1)
            assert engine.statistics().num_paused == 1
            stream.close()

    assert 50 <= made < 1900


async def test_leaving_with_requests_in_flight_takes_no_longer_than_a_step() -> None:
    with fail_after(60):
        async with AsyncMLCEngine() as engine:
            streams = [
                await engine.chat.completions.create(**STORY, seed=seed, stream=True)
                for seed in range(32)
            ]
            await anext(streams[0])
            with fail_after(5):
                await engine.unload()


async def die_with_readers(errors: list[EngineDeadError]) -> None:
    core = FakeCore(["x" * 1000], hand_stepped=True, dies_at_step=3)

    async def read() -> None:
        with pytest.raises(EngineDeadError) as caught:
            await engine.chat.completions.create(**STORY)

        errors.append(caught.value)

    async with AsyncMLCEngine(loader=fake_loader(core)) as engine, create_task_group() as tasks:
        for _ in range(64):
            tasks.start_soon(read)

        await anyio.wait_all_tasks_blocked()
        core.allow(3)


async def test_a_dead_engine_tells_every_reader_at_once_and_another_one_serves() -> None:
    errors: list[EngineDeadError] = []
    with fail_after(20):
        with pytest.raises(EngineDeadError):
            await die_with_readers(errors)

        async with AsyncMLCEngine() as engine:
            answer = await engine.chat.completions.create(**STORY, seed=1)

    assert len(errors) == 64
    assert answer.choices[0].finish_reason in {"stop", "length"}


async def test_room_that_cannot_be_had_is_an_error_at_the_door() -> None:
    config = EngineConfig(max_total_sequence_length=2**40)
    with pytest.raises(ModelLoadError, match="the memory holds"):
        async with AsyncMLCEngine(engine_config=config):
            pass
