"""Memory plans compared with the memory that loading takes."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path

import anyio
import pytest

from aiomlc import (
    AsyncMLCEngine,
    BadRequestError,
    EngineConfig,
    InsufficientMemoryError,
    MLCEngine,
    SyncMLCEngine,
)
from aiomlc import plan_memory as plan_engine
from aiomlc.runtime.loading.facts import ModelFacts
from aiomlc.runtime.loading.memory_plan import plan_memory
from aiomlc.runtime.loading.model_directory import find_model
from aiomlc.runtime.loading.prepare import prepare_model
from tests.model.conftest import OpenTiny
from tests.model.tiny_encoder import write_encoder
from tests.model.tiny_models import DISTINCT, TINY_CONFIGS

Directory = Callable[[str], Path]

_PLAIN_MALLOC = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": "1000000"}
# Opens a model for several cache sizes; prints the address space and the planned bytes of each.
_MEASURE_PROGRAM = """
import json, sys
from pathlib import Path
import anyio
from aiomlc.config import EngineConfig
from aiomlc.runtime.loading.facts import ModelFacts
from aiomlc.runtime.loading.open_decoder import open_native
from aiomlc.runtime.loading.model_directory import find_model

def size():
    return int(Path("/proc/self/statm").read_text().split()[0]) * 4096

opened = []
for tokens in map(int, sys.argv[4:]):
    config = EngineConfig(
        quantization=sys.argv[2],
        kv_cache_dtype=sys.argv[3],
        num_threads=1,
        max_total_sequence_length=tokens,
    )
    before = size()
    opened.append(
        anyio.run(
            open_native, ModelFacts(find_model(sys.argv[1]), sys.argv[2]), "auto", "local", config,
            lambda progress: None,
        )
    )
    print(json.dumps([size() - before, opened[-1].plan.kv_cache_bytes]))
"""


@pytest.mark.parametrize(
    ("architecture", "quantization"),
    [
        *product(TINY_CONFIGS, ("q0f32", "q4f16_1")),
        *product(DISTINCT, ("w4a8", "q0f16", "q0bf16")),
    ],
)
def test_weights_have_the_planned_size(
    tiny_directory: Directory, architecture: str, quantization: str
) -> None:
    directory = find_model(tiny_directory(architecture))
    config = EngineConfig(quantization=quantization, num_threads=2)

    prepared = anyio.run(
        prepare_model,
        ModelFacts(directory, config.quantization),
        "cpu",
        config,
        lambda progress: None,
    )

    plan = plan_memory(directory, "local", config)
    assert plan.weight_bytes == prepared.weights.nbytes
    assert plan.models[0].quantization == prepared.library.metadata["quantization"]
    assert plan.models[0].context_window == prepared.library.metadata["context_window_size"]
    assert plan.models[0].vocab_size == prepared.library.metadata["vocab_size"]


@pytest.mark.parametrize("architecture", TINY_CONFIGS)
def test_kv_cache_has_the_planned_pages(
    tiny_directory: Directory, open_tiny: OpenTiny, architecture: str
) -> None:
    config = EngineConfig(quantization="q4f16_1")
    plan = plan_memory(find_model(tiny_directory(architecture)), "local", config)

    assert open_tiny(architecture, "q4f16_1").free_pages() == plan.num_pages


@pytest.mark.parametrize(
    ("architecture", "quantization", "kv_cache_dtype"),
    [
        ("qwen3", "q4f16_1", "auto"),
        ("qwen3", "q0f32", "auto"),
        ("qwen3", "q4f16_1", "int8"),
        ("qwen3", "q4f16_1", "int4"),
        ("qwen3", "q0f32", "float16"),
        ("gemma4_text", "q4f16_1", "int8"),  # Its layers have unequal heads.
        ("gemma4_small", "q4f16_1", "auto"),  # Some layers also share their keys.
    ],
)
def test_kv_cache_has_the_planned_size(
    tiny_directory: Directory, architecture: str, quantization: str, kv_cache_dtype: str
) -> None:
    # The first load includes the libraries.
    tokens = [16, 2**18, 2**24 if kv_cache_dtype == "int4" else 2**23]
    result = subprocess.run(
        [
            *(sys.executable, "-c", _MEASURE_PROGRAM, tiny_directory(architecture), quantization),
            *(kv_cache_dtype, *map(str, tokens)),
        ],
        env={**os.environ, **_PLAIN_MALLOC},
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    _, small, large = [json.loads(line) for line in result.stdout.splitlines()]

    # Other allocations hardly depend on the number of tokens; thread stacks come and go.
    stacks = 4 * 2**23
    planned = large[1] - small[1]
    assert large[0] - small[0] == pytest.approx(planned, rel=0.02, abs=stacks)
    assert planned > 50 * stacks  # The stacks are at most 2 % as well.


async def test_engine_has_the_plan_of_its_load(tiny_directory: Directory) -> None:
    directory = tiny_directory("llama")
    config = EngineConfig(quantization="q0f32", max_num_sequence=3, gpu_memory_utilization=0.25)
    planned = plan_engine(directory, mode="server", engine_config=config)

    async with AsyncMLCEngine(directory, mode="server", engine_config=config) as engine:
        plan = engine.memory_plan
        pages = engine.statistics().total_pages

    assert plan is not None
    assert (plan.models, plan.limits, plan.given) == (planned.models, planned.limits, planned.given)
    assert pages == plan.num_pages


def test_insufficient_memory_is_raised_before_compilation(
    tiny_directory: Directory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tiny_directory("llama")
    monkeypatch.setenv("AIOMLC_HOME", str(tmp_path))
    config = EngineConfig(max_total_sequence_length=2**40)

    with pytest.raises(InsufficientMemoryError) as caught:
        MLCEngine(directory, engine_config=config)

    assert caught.value.plan.max_total_sequence_length == 2**40
    assert not (tmp_path / "libraries").exists()
    assert not (tmp_path / "weights").exists()


@pytest.mark.parametrize(("verbose", "level"), [(True, logging.INFO), (False, logging.DEBUG)])
def test_plan_is_logged_and_available_in_every_engine(
    tiny_directory: Directory,
    caplog: pytest.LogCaptureFixture,
    verbose: bool,
    level: int,
) -> None:
    caplog.set_level(logging.DEBUG, logger="aiomlc")
    config = EngineConfig(verbose=verbose, num_threads=1)

    for make in (MLCEngine, SyncMLCEngine):
        caplog.clear()
        with make(tiny_directory("llama"), engine_config=config) as engine:
            plan = engine.memory_plan

        logged = [(r.levelno, r.message) for r in caplog.records if "memory plan" in r.message]
        assert logged == [(level, f"memory plan\n{plan}")]


def test_planning_does_not_compile_or_convert(
    tiny_directory: Directory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tiny_directory("llama")
    monkeypatch.setenv("AIOMLC_HOME", str(tmp_path))

    plan_engine(directory)

    assert not (tmp_path / "libraries").exists()
    assert not (tmp_path / "weights").exists()


def test_plan_of_an_encoder_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(BadRequestError, match="is an encoder"):
        plan_engine(write_encoder(tmp_path / "encoder"))
