"""A prompt is prefilled in one process and decoded in another, with the bits of one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from aiomlc import EngineConfig, MLCEngine
from aiomlc.config import KVCacheType
from tests.e2e.programs import run_program

PROMPT = "Rosa was a fox who lived in a small house near the sea. " * 12


def complete(engine: MLCEngine) -> tuple[Any, ...]:
    answer = engine.completions.create(
        prompt=PROMPT, max_tokens=24, seed=3, temperature=0.8, logprobs=5
    )
    choice = answer.choices[0]
    return choice.text, choice.logprobs


@pytest.mark.sampled(1)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "int8"])
def test_another_process_continues_a_prompt_exactly(tmp_path: Path, dtype: KVCacheType) -> None:
    program = run_program(["-m", "tests.e2e.prefix_process", str(tmp_path), dtype, PROMPT])
    assert program.returncode == 0, program.stderr
    config = EngineConfig(kv_cache_dtype=dtype)
    with MLCEngine(engine_config=config) as engine:
        expected = complete(engine)
        engine.reset()
        for piece in sorted(tmp_path.iterdir()):
            num_tokens = engine.import_prefix(piece.read_bytes())

        assert num_tokens == engine.count_cached_tokens(prompt=PROMPT)
        assert complete(engine) == expected
        assert engine.statistics().prefill_tokens == 1
