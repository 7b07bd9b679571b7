"""Draining, resetting, unloading and reloading the bundled model under load."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from anyio import create_task_group, fail_after

from aiomlc import (
    AiomlcError,
    AsyncMLCEngine,
    EngineClosedError,
    EngineConfig,
    GenerationConfig,
    JSONFFIEngine,
    MLCEngine,
    SyncMLCEngine,
    TextData,
)

QUESTION: dict[str, Any] = {
    "messages": [{"role": "user", "content": "What is the capital of Italy?"}],
    "temperature": 0,
}
ENDLESS: dict[str, Any] = {**QUESTION, "ignore_eos": True, "temperature": 1.0}


async def test_unload_ends_requests_in_flight_and_reload_serves_again() -> None:
    outcomes: list[type[AiomlcError]] = []

    async def complete(engine: AsyncMLCEngine, seed: int) -> None:
        try:
            await engine.chat.completions.create(**ENDLESS, seed=seed)
        except AiomlcError as error:
            outcomes.append(type(error))

    with fail_after(60):
        async with AsyncMLCEngine() as engine:
            before = await engine.chat.completions.create(**QUESTION)
            async with create_task_group() as tasks:
                for seed in range(40):
                    tasks.start_soon(complete, engine, seed)

                await engine.chat.completions.create(**QUESTION, max_tokens=1)
                await engine.unload()

            with pytest.raises(EngineClosedError):
                await engine.chat.completions.create(**QUESTION)

            await engine.reload()
            after = await engine.chat.completions.create(**QUESTION)
            assert await engine.drain(timeout=30)
            engine.resume()
            await engine.reset()
            statistics = engine.statistics()

    assert outcomes
    assert set(outcomes) == {EngineClosedError}
    assert before.choices[0].message.content == after.choices[0].message.content
    assert statistics.num_running == statistics.num_waiting == 0


def test_reset_of_the_step_engine_sets_the_counters_to_zero() -> None:
    with SyncMLCEngine(request_stream_callback=lambda outputs: None) as engine:
        engine.generate("One two three", GenerationConfig(max_tokens=5))
        request = engine.create_request("x", TextData("One two"), GenerationConfig(max_tokens=50))
        engine.add_request(request)
        engine.step()
        engine.reset()
        statistics = engine.statistics()

    assert (statistics.completion_tokens, statistics.steps, statistics.num_recycling) == (0, 0, 0)
    assert statistics.free_pages == statistics.total_pages


async def test_engine_config_is_completed_while_the_model_is_loaded() -> None:
    given = EngineConfig(max_num_sequence=3)
    async with AsyncMLCEngine(engine_config=given) as engine:
        plan, config = engine.memory_plan, engine.engine_config
        await engine.unload()
        unloaded = engine.engine_config
        await engine.reload()
        reloaded = engine.memory_plan

    assert plan is not None
    assert reloaded is not None
    assert (config.max_num_sequence, config.mode) == (3, "local")
    for name in (
        "max_total_sequence_length",
        "max_single_sequence_length",
        "prefill_chunk_size",
    ):
        assert getattr(config, name) == getattr(plan, name) > 0
    assert unloaded == dataclasses.replace(given, mode="local")
    assert plan.given == reloaded.given == {"max_num_sequence"}


def test_every_engine_completes_its_config() -> None:
    with MLCEngine() as sync, JSONFFIEngine() as json, SyncMLCEngine() as steps:
        configs = [engine.engine_config for engine in (sync, json, steps)]

    assert configs[0] == configs[1] == configs[2]
    assert configs[0].max_num_sequence == 32
