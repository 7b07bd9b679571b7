"""The engine on an OpenCL device: batches, prefixes, preemption, drafts, and typed errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from anyio import CancelScope, create_task_group, fail_after, lowlevel

from aiomlc import AsyncMLCEngine, BadRequestError, EngineConfig, EngineDeadError, MLCEngine
from aiomlc.runtime.loading.memory_plan import InsufficientMemoryError
from tests.model.opencl.conftest import FaultyDevice

OpenEngine = Callable[..., AsyncMLCEngine]
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


def _request(content: str, max_tokens: int = 12) -> dict[str, Any]:
    messages = [{"role": "user", "content": content}]
    return {"messages": messages, "max_tokens": max_tokens, "temperature": 0}


async def _complete(engine: AsyncMLCEngine, request: dict[str, Any]) -> tuple[str, int]:
    """Return the text and the cached prompt tokens of a completion."""
    completion = await engine.chat.completions.create(**request)
    assert completion.usage is not None
    cached = completion.usage.prompt_tokens_details.cached_tokens
    return completion.choices[0].message.content or "", cached


async def _complete_all(
    engine: AsyncMLCEngine, requests: Sequence[dict[str, Any]]
) -> list[tuple[str, int]]:
    results = [("", 0)] * len(requests)

    async def complete(index: int) -> None:
        results[index] = await _complete(engine, requests[index])

    async with create_task_group() as tasks:
        for index in range(len(requests)):
            tasks.start_soon(complete, index)
    return results


@pytest.mark.parametrize("open_engine", MODELS, indirect=True)
async def test_batches_and_the_prefix_cache_keep_the_answers_of_the_cpu(
    open_engine: OpenEngine,
) -> None:
    text = "Tell me about the sea. " * 6
    requests = [_request(text[: 20 * i]) for i in range(1, 7)] * 2
    async with open_engine("cpu", prefix_cache_mode="disable") as engine:
        native = [text for text, _ in await _complete_all(engine, requests)]

    async with open_engine(DEVICE) as engine:
        sequential = [await _complete(engine, request) for request in requests]
        batched = await _complete_all(engine, requests)
        statistics = engine.statistics()

    assert [text for text, _ in sequential] == native
    assert [text for text, _ in batched] == native
    assert sum(cached for _, cached in sequential) > 200
    assert statistics.free_pages == statistics.total_pages


@pytest.mark.parametrize("open_engine", MODELS, indirect=True)
async def test_preempted_sequences_keep_the_answers_of_the_cpu(open_engine: OpenEngine) -> None:
    requests = [_request(f"{i} is a number.", max_tokens=100) for i in range(6)]
    async with open_engine("cpu") as engine:
        native = [text for text, _ in await _complete_all(engine, requests)]

    small = {"max_total_sequence_length": 400, "max_single_sequence_length": 200}
    async with open_engine(DEVICE, **small, prefix_cache_mode="disable") as engine:
        answers = [text for text, _ in await _complete_all(engine, requests)]
        statistics = engine.statistics()

    assert answers == native
    assert statistics.preemptions > 0
    assert statistics.free_pages == statistics.total_pages


async def test_a_cancelled_request_frees_its_pages(open_engine: OpenEngine) -> None:
    async with open_engine(DEVICE) as engine:
        with CancelScope() as scope:
            stream = await engine.chat.completions.create(
                **_request("Say something long.", max_tokens=400), stream=True
            )
            async with stream:
                async for _ in stream:
                    scope.cancel()
        text, _ = await _complete(engine, _request("Are you there?"))
        with fail_after(10):
            while (statistics := engine.statistics()).num_running:
                await lowlevel.checkpoint()

    assert scope.cancelled_caught
    assert text
    assert statistics.finished["abort"] == 1
    assert statistics.free_pages == statistics.total_pages


@pytest.mark.parametrize("open_engine", MODELS[:2], indirect=True)
async def test_drafts_keep_the_answers_of_the_cpu(open_engine: OpenEngine) -> None:
    requests = [_request("one two three one two three one two", max_tokens=60)]
    async with open_engine("cpu") as engine:
        native = [text for text, _ in await _complete_all(engine, requests)]

    async with open_engine(DEVICE, speculative_mode="prompt_lookup") as engine:
        answers = [text for text, _ in await _complete_all(engine, requests)]
        statistics = engine.statistics()

    assert answers == native
    assert statistics.draft_tokens > 0
    assert statistics.free_pages == statistics.total_pages


async def test_a_lost_device_ends_the_engine_and_another_engine_works(
    open_engine: OpenEngine, faulty_device: FaultyDevice
) -> None:
    async with open_engine(DEVICE) as engine:
        expected, _ = await _complete(engine, _request("Hello!"))

    async def lose_device() -> None:
        async with open_engine(DEVICE) as engine:
            faulty_device.inject(launches=50)
            with pytest.raises(EngineDeadError, match="injected fault"):
                await _complete(engine, _request("Are you there?"))

    with pytest.raises(EngineDeadError, match=r"CL_DEVICE_NOT_AVAILABLE \(-2\)"):
        await lose_device()

    faulty_device.inject()
    async with open_engine(DEVICE) as engine:
        assert (await _complete(engine, _request("Hello!")))[0] == expected


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
    config = EngineConfig(num_threads=2, **{"quantization": "q0f32", **options})
    with pytest.raises(BadRequestError, match=f"'opencl': .*{problem}.*'cpu'$") as caught:
        MLCEngine(tiny_directory(architecture), device=DEVICE, engine_config=config)

    assert caught.value.param == param


def test_an_absent_index_is_refused_with_the_devices_that_there_are(
    tiny_directory: Directory,
) -> None:
    config = EngineConfig(quantization="q0f32", num_threads=2)
    with pytest.raises(BadRequestError, match=r"opencl:7; this machine has opencl:0 \(") as caught:
        MLCEngine(tiny_directory("llama"), device="opencl:7", engine_config=config)

    assert caught.value.param == "device"
