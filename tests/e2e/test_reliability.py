"""The claims of docs/reliability.md that concern an entire engine."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from random import Random
from typing import Any

import anyio
import pytest
from anyio import (
    Event,
    create_task_group,
    fail_after,
    from_thread,
    move_on_after,
    wait_all_tasks_blocked,
)

from aiomlc import (
    AsyncMLCEngine,
    EngineClosedError,
    EngineConfig,
    EngineDeadError,
    GrammarError,
    ModelLoadError,
)
from aiomlc.testing import FakeCore, fake_loader
from tests.e2e.waiting import wait_until

STORY: dict[str, Any] = {
    "messages": [{"role": "user", "content": "Tell me a story about a fox called Rosa."}],
    "max_tokens": 200,
}
ENDLESS: dict[str, Any] = {**STORY, "ignore_eos": True, "max_tokens": 1900}
# Pages for four stories.
FOUR_STORIES = EngineConfig(max_total_sequence_length=4 * 224, max_single_sequence_length=448)


async def test_64_streams_with_pages_for_4_all_finish() -> None:
    reasons: list[str | None] = []

    async def read(engine: AsyncMLCEngine, seed: int) -> None:
        stream = await engine.chat.completions.create(**STORY, seed=seed, stream=True)
        reasons.append([chunk.choices[0].finish_reason async for chunk in stream][-1])

    with fail_after(60):
        async with (
            AsyncMLCEngine(engine_config=FOUR_STORIES) as engine,
            create_task_group() as tasks,
        ):
            for seed in range(64):
                tasks.start_soon(read, engine, seed)

    assert len(reasons) == 64
    assert set(reasons) <= {"stop", "length"}


async def test_cancelling_half_of_the_requests_at_random_times_frees_every_page() -> None:
    finished: list[int] = []

    async def complete(engine: AsyncMLCEngine, seed: int) -> None:
        seconds = Random(seed).random() * 0.05 if seed % 2 else 60
        with move_on_after(seconds) as scope:
            await engine.chat.completions.create(**STORY, seed=seed)

        if not scope.cancelled_caught:
            finished.append(seed)

    with fail_after(60):
        async with AsyncMLCEngine(engine_config=FOUR_STORIES) as engine:
            async with create_task_group() as tasks:
                for seed in range(64):
                    tasks.start_soon(complete, engine, seed)

            assert await engine.drain(timeout=20)
            statistics = engine.statistics()

    assert {seed for seed in finished if seed % 2 == 0} == set(range(0, 64, 2))
    assert statistics.free_pages == statistics.total_pages


async def test_unsatisfiable_grammar_fails_only_its_request() -> None:
    reasons: list[str | None] = []

    async def complete(engine: AsyncMLCEngine, seed: int) -> None:
        completion = await engine.chat.completions.create(**STORY, seed=seed)
        reasons.append(completion.choices[0].finish_reason)

    async def fail(engine: AsyncMLCEngine) -> None:
        schema = {"type": "string", "minLength": 3, "maxLength": 2}
        with pytest.raises(GrammarError):
            await engine.chat.completions.create(
                **STORY, response_format={"type": "json_object", "schema": schema}
            )

    with fail_after(60):
        async with AsyncMLCEngine() as engine, create_task_group() as tasks:
            for seed in range(8):
                tasks.start_soon(complete, engine, seed)
                tasks.start_soon(fail, engine)

    assert len(reasons) == 8
    assert set(reasons) <= {"stop", "length"}


async def test_20_top_logprobs_are_returned() -> None:
    async with AsyncMLCEngine() as engine:
        completion = await engine.chat.completions.create(
            **{**STORY, "max_tokens": 5}, logprobs=True, top_logprobs=20
        )

    logprobs = completion.choices[0].logprobs
    assert logprobs is not None
    assert [len(entry.top_logprobs) for entry in logprobs.content] == [20] * 5


async def tell_ten_stories() -> list[str | None]:
    texts = []
    async with AsyncMLCEngine() as engine:
        for seed in range(10):
            completion = await engine.chat.completions.create(**STORY, seed=seed)
            texts.append(completion.choices[0].message.content)

    return texts


def test_asyncio_and_trio_engines_run_in_one_process() -> None:
    with ThreadPoolExecutor(2) as executor:
        runs = [
            executor.submit(partial(anyio.run, tell_ten_stories, backend=backend))
            for backend in ("asyncio", "trio")
        ]
        on_asyncio, on_trio = (run.result(timeout=60) for run in runs)

    assert len(on_asyncio) == 10
    assert on_asyncio == on_trio


async def test_unread_stream_is_paused_and_delays_no_other_request() -> None:
    config = EngineConfig(max_unread_tokens=50)
    with fail_after(60):
        async with AsyncMLCEngine(engine_config=config) as engine:
            stream = await engine.chat.completions.create(**ENDLESS, stream=True)
            await wait_until(lambda: engine.statistics().num_paused == 1)
            num_tokens = engine.statistics().completion_tokens
            await engine.chat.completions.create(**STORY, seed=1)
            assert engine.statistics().num_paused == 1
            stream.close()

    assert 50 <= num_tokens < 1900


async def test_unload_ends_requests_in_flight_after_the_current_step() -> None:
    is_stepping, may_return = Event(), threading.Event()
    num_steps = 0
    errors: list[EngineClosedError] = []

    def block_step(_token_ids: Sequence[int], _logits: object) -> None:
        nonlocal num_steps
        num_steps += 1
        from_thread.run_sync(is_stepping.set)
        assert may_return.wait(30)

    async def complete(engine: AsyncMLCEngine, seed: int, **options: Any) -> None:  # noqa: ANN401
        with pytest.raises(EngineClosedError) as caught:
            await engine.chat.completions.create(**ENDLESS, seed=seed, **options)

        errors.append(caught.value)

    with fail_after(60):
        async with AsyncMLCEngine() as engine, create_task_group() as tasks:
            for seed in range(31):
                tasks.start_soon(complete, engine, seed)

            await wait_until(lambda: engine.statistics().num_running == 31)
            tasks.start_soon(partial(complete, engine, 31, logits_processors=[block_step]))
            await is_stepping.wait()
            tasks.start_soon(engine.unload)
            await wait_all_tasks_blocked()
            assert errors == [], "unload must wait for the step that runs"
            may_return.set()

    assert len(errors) == 32
    assert num_steps == 1


async def fail_with_readers(errors: list[EngineDeadError]) -> None:
    core = FakeCore(["x" * 1000], hand_stepped=True, dies_at_step=3)

    async def read() -> None:
        with pytest.raises(EngineDeadError) as caught:
            await engine.chat.completions.create(**STORY)

        errors.append(caught.value)

    async with AsyncMLCEngine(loader=fake_loader(core)) as engine, create_task_group() as tasks:
        for _ in range(64):
            tasks.start_soon(read)

        await wait_all_tasks_blocked()
        core.allow(3)


async def test_engine_death_is_raised_to_every_reader_and_a_new_engine_serves() -> None:
    errors: list[EngineDeadError] = []
    with fail_after(20):
        with pytest.raises(EngineDeadError):
            await fail_with_readers(errors)

        async with AsyncMLCEngine() as engine:
            completion = await engine.chat.completions.create(**STORY, seed=1)

    assert len(errors) == 64
    assert completion.choices[0].finish_reason in {"stop", "length"}


async def test_kv_cache_that_exceeds_the_memory_is_rejected_while_loading() -> None:
    config = EngineConfig(max_total_sequence_length=2**40)
    with pytest.raises(ModelLoadError, match="the memory holds"):
        async with AsyncMLCEngine(engine_config=config):
            pass
