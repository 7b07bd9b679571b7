"""The GGUF files with random blocks, on which the benchmarks measure large shapes."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from aiomlc import AsyncMLCEngine
from benchmarks.random_gguf import SHAPES, GgufShape, make_random_gguf

_GPT_OSS = dataclasses.replace(
    SHAPES["gpt-oss-20b"],
    vocabulary=2048,
    hidden=256,
    layers=2,
    heads=4,
    kv_heads=2,
    intermediate=256,
    experts=4,
    active=2,
)
_DENSE = dataclasses.replace(
    SHAPES["tiny"], architecture="qwen35", experts=0, active=0, vocabulary=1024
)


@pytest.mark.parametrize(
    "shape", [SHAPES["tiny"], _DENSE, _GPT_OSS], ids=lambda shape: shape.architecture
)
async def test_random_files_open_and_answer(
    model_cache: Path, tmp_path: Path, shape: GgufShape
) -> None:
    path = make_random_gguf(tmp_path / shape.architecture, shape)
    async with AsyncMLCEngine(path) as engine:
        response = await engine.chat.completions.create(
            messages=[{"role": "user", "content": "Hello"}], max_tokens=5, ignore_eos=True
        )

    assert response.usage is not None
    assert response.usage.completion_tokens == 5
