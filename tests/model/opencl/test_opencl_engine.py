"""The engine on an OpenCL device: batches, prefixes, preemption, drafts, and typed errors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aiomlc import AsyncMLCEngine, BadRequestError, EngineConfig, EngineDeadError, MLCEngine
from aiomlc.runtime.loading.memory_plan import InsufficientMemoryError
from tests.model.engine_answers import (
    OpenEngine,
    chat_request,
    check_cancellation,
    check_preemption,
    check_refusal,
    check_shared_prefixes,
    complete,
    complete_all,
)
from tests.model.opencl.conftest import FaultyDevice

Directory = Callable[[str], Path]

DEVICE = "opencl"

pytestmark = [pytest.mark.thorough, pytest.mark.usefixtures("opencl")]


# TVM's KV cache, page tables, and page tables with recurrent states.
MODELS = ("llama", "gemma3_text", "qwen3_5_text")


@pytest.fixture
def open_engine(
    request: pytest.FixtureRequest, model_cache: Path, tiny_directory: Directory
) -> OpenEngine:
    """Return a function that opens an engine of the parameter's model, or of a Llama."""
    directory = tiny_directory(getattr(request, "param", "llama"))

    def open_one(device: str, **options: Any) -> AsyncMLCEngine:  # noqa: ANN401
        config = EngineConfig(quantization="q0f32", num_threads=2, **options)
        return AsyncMLCEngine(directory, device=device, engine_config=config)

    return open_one


@pytest.mark.parametrize("open_engine", MODELS, indirect=True)
async def test_batches_and_the_prefix_cache_keep_the_answers_of_the_cpu(
    open_engine: OpenEngine,
) -> None:
    await check_shared_prefixes(open_engine, DEVICE, min_cached=200)


@pytest.mark.parametrize("open_engine", MODELS, indirect=True)
async def test_preempted_sequences_keep_the_answers_of_the_cpu(open_engine: OpenEngine) -> None:
    await check_preemption(open_engine, DEVICE)


async def test_a_cancelled_request_frees_its_pages(open_engine: OpenEngine) -> None:
    await check_cancellation(open_engine, DEVICE)


@pytest.mark.parametrize("open_engine", MODELS[:2], indirect=True)
async def test_drafts_keep_the_answers_of_the_cpu(open_engine: OpenEngine) -> None:
    requests = [chat_request("one two three one two three one two", max_tokens=60)]
    async with open_engine("cpu") as engine:
        native = [answer.texts for answer in await complete_all(engine, requests)]

    async with open_engine(DEVICE, speculative_mode="prompt_lookup") as engine:
        answers = [answer.texts for answer in await complete_all(engine, requests)]
        statistics = engine.statistics()

    assert answers == native
    assert statistics.draft_tokens > 0
    assert statistics.free_pages == statistics.total_pages


async def test_a_lost_device_ends_the_engine_and_another_engine_works(
    open_engine: OpenEngine, faulty_device: FaultyDevice
) -> None:
    async with open_engine(DEVICE) as engine:
        expected, _ = await complete(engine, chat_request("Hello!"))

    async def lose_device() -> None:
        async with open_engine(DEVICE) as engine:
            faulty_device.inject(launches=50)
            with pytest.raises(EngineDeadError, match="injected fault"):
                await complete(engine, chat_request("Are you there?"))

    with pytest.raises(EngineDeadError, match=r"CL_DEVICE_NOT_AVAILABLE \(-2\)"):
        await lose_device()

    faulty_device.inject()
    async with open_engine(DEVICE) as engine:
        assert (await complete(engine, chat_request("Hello!")))[0] == expected


def test_a_device_with_too_little_memory_is_an_error_with_the_plan(
    tiny_directory: Directory, faulty_device: FaultyDevice
) -> None:
    config = EngineConfig(quantization="q0f32", num_threads=2)
    faulty_device.inject(memory_bytes=1 << 20)

    with pytest.raises(InsufficientMemoryError, match="bytes do not fit on ") as caught:
        MLCEngine(tiny_directory("llama"), device=DEVICE, engine_config=config)

    assert caught.value.plan.weight_bytes > 0


@pytest.mark.parametrize(
    ("architecture", "options", "problem", "param"),
    [
        ("llama", {"quantization": "q0f16"}, "must be q0f32 or q4f16_1, got q0f16", "quantization"),
        (
            "lfm2",
            {"speculative_mode": "prompt_lookup"},
            "the states of recurrent layers are not rewound",
            "speculative_mode",
        ),
    ],
)
def test_what_it_does_not_support_is_refused_by_name(
    tiny_directory: Directory,
    architecture: str,
    options: dict[str, Any],
    problem: str,
    param: str,
) -> None:
    check_refusal(tiny_directory(architecture), DEVICE, options, problem, param)


def test_an_absent_index_is_refused_with_the_devices_that_there_are(
    tiny_directory: Directory,
) -> None:
    config = EngineConfig(quantization="q0f32", num_threads=2)
    with pytest.raises(BadRequestError, match=r"opencl:7; this machine has opencl:0 \(") as caught:
        MLCEngine(tiny_directory("llama"), device="opencl:7", engine_config=config)

    assert caught.value.param == "device"
