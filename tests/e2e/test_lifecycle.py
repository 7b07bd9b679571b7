"""The bundled model drained, reset, unloaded and loaded again under load."""

from __future__ import annotations

from typing import Any

import pytest
from anyio import create_task_group, fail_after

from aiomlc import AiomlcError, AsyncMLCEngine, EngineClosedError, SyncMLCEngine, TextData
from aiomlc.api.step_data import GenerationConfig

QUESTION: dict[str, Any] = {
    "messages": [{"role": "user", "content": "What is the capital of Italy?"}],
    "temperature": 0,
}
ENDLESS: dict[str, Any] = {**QUESTION, "ignore_eos": True, "temperature": 1.0}


async def test_requests_in_flight_end_and_the_model_answers_again() -> None:
    outcomes: list[type[AiomlcError]] = []

    async def ask(engine: AsyncMLCEngine, seed: int) -> None:
        try:
            await engine.chat.completions.create(**ENDLESS, seed=seed)
        except AiomlcError as error:
            outcomes.append(type(error))

    with fail_after(60):
        async with AsyncMLCEngine() as engine:
            before = await engine.chat.completions.create(**QUESTION)
            async with create_task_group() as tasks:
                for seed in range(40):
                    tasks.start_soon(ask, engine, seed)

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


def test_a_reset_by_hand_sets_the_counters_to_zero() -> None:
    with SyncMLCEngine(request_stream_callback=lambda outputs: None) as engine:
        engine.generate("One two three", GenerationConfig(max_tokens=5))
        request = engine.create_request("x", TextData("One two"), GenerationConfig(max_tokens=50))
        engine.add_request(request)
        engine.step()
        engine.reset()
        statistics = engine.statistics()

    assert (statistics.completion_tokens, statistics.steps, statistics.num_recycling) == (0, 0, 0)
    assert statistics.free_pages == statistics.total_pages
