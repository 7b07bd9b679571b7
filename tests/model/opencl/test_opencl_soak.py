"""Badly behaved clients of an engine on an OpenCL device: AIOMLC_SOAK_SECONDS of them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.soak import Settings, soak

SECONDS = float(os.environ.get("AIOMLC_SOAK_SECONDS", "15"))

pytestmark = [pytest.mark.thorough, pytest.mark.usefixtures("opencl")]


@pytest.mark.timeout(3 * SECONDS + 240)
@pytest.mark.parametrize("architecture", ["llama", "qwen3_5_text"])
async def test_memory_does_not_grow_and_every_page_is_freed(
    model_cache: Path, tiny_directory: Callable[[str], Path], architecture: str
) -> None:
    settings = Settings(
        seconds=SECONDS,
        clients=32,
        seed=7,
        backend="asyncio",
        mode="disable",
        nan_every=500,
        draft_fails_at=None,
        allowed_growth_mb=64,
        hang_after=120,
        device="opencl",
        model=tiny_directory(architecture),
    )

    assert await soak(settings) == []
