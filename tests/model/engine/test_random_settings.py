"""Settings of an engine give the tokens of the simplest ones, or an error that names a field."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
from anyio import create_task_group

from aiomlc import AsyncMLCEngine, EngineConfig
from aiomlc.errors import BadRequestError, ModelLoadError

pytestmark = pytest.mark.timeout(120)
PROMPTS: Final = ("Hello fox, hello fox, hello", "b", "The the the the quick")
QUANTIZATIONS: Final = (
    *(None, "q4f16_1", "q0f32", "q0f16", "q0bf16", "w4a8", "w8a8", "q8_0"),
    "q3f16_1",  # Not supported.
)
KV_CACHES: Final = ("auto", "float32", "float16", "bfloat16", "int8", "int4")
#: The settings that change how tokens are computed, not which.
SCHEDULES: Final[dict[str, tuple[Any, ...]]] = {
    "prefill_chunk_size": (1, 3, 16, 17, 64),
    "step_token_budget": (1, 2, 16, 64, 1000),
    "prefill_mode": ("hybrid", "chunked"),
    "prefix_cache_mode": ("radix", "disable"),
    "prefix_cache_max_num_recycling_seqs": (0, 1, -1),
    "speculative_mode": ("disable", "prompt_lookup"),
    "max_num_sequence": (1, 2, 3, 8),
    "max_total_sequence_length": (64, 96, 256),
    "max_unread_tokens": (1, 1024),
    "num_threads": (1, 2, 3),
    "enable_tracing": (True,),
    "gpu_memory_utilization": (0.001, 0.5, 1.0),
}


async def generate(directory: Path, settings: dict[str, Any]) -> list[tuple[str, object]]:
    """Return the texts of concurrent requests, and their log-probabilities."""
    answers: dict[int, tuple[str, object]] = {}
    async with AsyncMLCEngine(directory, engine_config=EngineConfig(**settings)) as engine:

        async def ask(number: int) -> None:
            answer = await engine.completions.create(
                prompt=PROMPTS[number],
                max_tokens=14,
                temperature=0.8 * (number == 2),
                seed=5,
                logprobs=2,
            )
            (choice,) = answer.choices
            assert choice.logprobs is not None
            answers[number] = (choice.text, choice.logprobs.token_logprobs)

        async with create_task_group() as tasks:
            for number in range(len(PROMPTS)):
                tasks.start_soon(ask, number)
        assert engine.statistics().num_running == 0
    return [answers[number] for number in range(len(PROMPTS))]


async def generate_or_refuse(
    directory: Path, settings: dict[str, Any]
) -> list[tuple[str, object]] | None:
    """Return what `generate` returns, or None after an error that says what to change."""
    try:
        return await generate(directory, settings)
    except (BadRequestError, ModelLoadError) as error:
        message = str(error)
    assert any(name in message for name in settings), message
    return None


def random_settings(random_: Random) -> dict[str, Any]:
    settings = {
        "quantization": random_.choice(QUANTIZATIONS),
        "kv_cache_dtype": random_.choice(KV_CACHES),
        "max_single_sequence_length": random_.choice((48, 64)),
    }
    if random_.random() < 0.3:
        settings["sliding_window_size"] = random_.choice((-1, 5, 16, 32))
    return settings


@pytest.mark.sampled(seed=(0,))
@pytest.mark.parametrize("seed", range(20))
async def test_schedules_of_random_settings_give_the_same_tokens(
    tiny_directory: Callable[[str], Path], seed: int
) -> None:
    random_ = Random(seed)
    directory = tiny_directory("gemma3_text")
    settings = random_settings(random_)
    expected = await generate_or_refuse(directory, settings)
    for _ in range(4 if expected is not None else 0):
        chosen = {
            name: random_.choice(values)
            for name, values in SCHEDULES.items()
            if random_.random() < 0.3
        }
        answers = await generate_or_refuse(directory, settings | chosen)
        assert answers in (expected, None), settings | chosen
