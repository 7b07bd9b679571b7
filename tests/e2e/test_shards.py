"""The bundled model in two processes."""

from __future__ import annotations

import pytest

from aiomlc import AsyncMLCEngine, EngineConfig
from aiomlc.config import SpeculativeMode

QUESTIONS = ("What is the capital of France?", "Who are you?", "What is 2 + 3?")


async def _answers(count: int, mode: SpeculativeMode = "disable") -> list[str | None]:
    config = EngineConfig(tensor_parallel_shards=count, num_threads=2, speculative_mode=mode)
    answers = []
    async with AsyncMLCEngine(engine_config=config) as engine:
        for question in QUESTIONS:
            completion = await engine.chat.completions.create(
                messages=[{"role": "user", "content": question}], temperature=0, max_tokens=40
            )
            answers.append(completion.choices[0].message.content)
    return answers


@pytest.mark.parametrize("mode", ["disable", "small_draft"])
async def test_two_shards_give_the_answers_of_one(mode: SpeculativeMode) -> None:
    expected = await _answers(1)

    assert await _answers(2, mode) == expected
    assert "Paris" in (expected[0] or "")
