"""The second back end: what the interface of back ends promises holds for code of TVM, too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from anyio import CancelScope, create_task_group, fail_after, lowlevel

from aiomlc import AsyncMLCEngine, BadRequestError, CompileError, EngineConfig, MLCEngine
from aiomlc.runtime.native.model import NativeModel
from tests.model.device_logits import (
    QUESTIONS,
    check_batch,
    check_forks,
    check_logits,
    check_storage,
)
from tests.model.families.test_piece_logits import REFERENCE, answers, check, open_core
from tests.model.tiny_pieces import PROMPTS
from tests.model.tiny_pieces import write_model as write_pieces

OpenTiny = Callable[..., NativeModel]
OpenEngine = Callable[..., AsyncMLCEngine]
Directory = Callable[[str], Path]

DEVICE = "cpu:tvm"
TOLERANCE = 1e-4


# ---- Logits ----


@pytest.mark.parametrize(
    ("architecture", "quantization", "kv_cache_dtype"),
    [
        ("llama", "q0f32", "auto"),
        ("qwen3", "q0f32", "auto"),  # Norms of queries and keys.
        ("stablelm", "q0f32", "auto"),  # LayerNorms, and only some dimensions are rotated.
        ("llama", "q4f16_1", "float32"),
        ("qwen2_moe", "q0f32", "auto"),
        ("qwen3_moe", "q4f16_1", "float32"),
        ("gemma2", "q0f32", "auto"),  # Windows, softcapped scores.
        ("gemma3_text", "q4f16_1", "float32"),  # RoPE per layer.
        ("gemma3n_text", "q0f32", "auto"),  # Several streams, shared keys and values.
        ("gemma4_small", "q0f32", "auto"),  # Heads per layer.
        ("gpt_oss", "q0f32", "auto"),  # Sink scores.
        ("gpt_oss", "q4f16_1", "float32"),  # Experts with biases.
        ("phi3_long", "q0f32", "auto"),
        ("lfm2_moe", "q0f32", "auto"),  # Short convolutions.
        ("qwen3_5_text", "q4f16_1", "float32"),  # Gated delta nets and gated attention.
    ],
)
def test_logits_equal_transformers(
    open_tiny: OpenTiny, architecture: str, quantization: str, kv_cache_dtype: str
) -> None:
    model = open_tiny(architecture, quantization, kv_cache_dtype, DEVICE)

    check_logits(model, architecture, quantization, TOLERANCE)


@pytest.mark.parametrize(
    ("architecture", "kv_cache_dtype", "tolerance"),
    [("llama", "int8", 1e-3), ("gemma3_text", "int8", 1e-3), ("llama", "bfloat16", 1e-2)],
)
def test_stored_keys_and_values_have_the_rounding_of_the_cpu(
    open_tiny: OpenTiny, architecture: str, kv_cache_dtype: str, tolerance: float
) -> None:
    check_storage(open_tiny, architecture, kv_cache_dtype, DEVICE, tolerance)


@pytest.mark.parametrize("architecture", ["llama", "gemma3_text", "qwen3_5_text"])
def test_sequences_of_a_batch_do_not_affect_each_other(
    open_tiny: OpenTiny, architecture: str
) -> None:
    check_batch(open_tiny(architecture, "q0f32", "auto", DEVICE), TOLERANCE)


@pytest.mark.parametrize("architecture", ["llama", "gemma3_text"])
def test_a_fork_at_any_position_continues_the_prefix(
    open_tiny: OpenTiny, architecture: str
) -> None:
    check_forks(open_tiny(architecture, "q0f32", "auto", DEVICE), TOLERANCE)


@pytest.mark.usefixtures("model_cache")
@pytest.mark.parametrize("name", ["gemma3", "qwen3_vl"])  # Images that see themselves; M-RoPE.
def test_answers_to_images_equal_transformers(tmp_path: Path, name: str) -> None:
    with np.load(REFERENCE / f"pieces_{name}.npz") as stored:
        tokens, logprobs = stored["tokens"], stored["logprobs"]
    core = open_core(write_pieces(tmp_path, name), 64, DEVICE)
    result = answers(core, name, PROMPTS)
    core.close()
    core.release()

    check(result, tokens, logprobs)


# ---- The engine ----


@pytest.fixture
def open_engine(model_cache: Path, tiny_directory: Directory) -> OpenEngine:
    directory = tiny_directory("llama")

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


async def test_batches_and_the_prefix_cache_keep_the_native_answers(
    open_engine: OpenEngine,
) -> None:
    text = "Tell me about the sea. " * 6
    requests = [_request(text[: 20 * i]) for i in range(1, 7)] * 2
    async with open_engine("cpu", prefix_cache_mode="disable") as engine:
        native = [text for text, _ in await _complete_all(engine, requests)]

    async with open_engine(DEVICE) as engine:
        sequential = [await _complete(engine, request) for request in requests]
    async with open_engine(DEVICE) as engine:
        batched = await _complete_all(engine, requests)
        statistics = engine.statistics()

    assert [text for text, _ in sequential] == native
    assert [text for text, _ in batched] == native
    assert sum(cached for _, cached in sequential) > 500
    assert statistics.free_pages == statistics.total_pages


async def test_preempted_sequences_keep_the_native_answers(open_engine: OpenEngine) -> None:
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
        with fail_after(5):
            while (statistics := engine.statistics()).num_running:
                await lowlevel.checkpoint()

    assert scope.cancelled_caught
    assert text
    assert statistics.finished["abort"] == 1
    assert statistics.completion_tokens < 400
    assert statistics.free_pages == statistics.total_pages


def test_the_bundled_model_has_the_native_answers(model_cache: Path) -> None:
    answers = []
    for device in ("cpu", DEVICE):
        with MLCEngine(device=device) as engine:
            completions = [
                engine.chat.completions.create(**_request(question, max_tokens=40))
                for question in QUESTIONS
            ]
        answers.append([completion.choices[0].message.content for completion in completions])

    assert answers[0] == answers[1]
    assert "Paris" in (answers[0][0] or "")


# ---- What it does not support ----


@pytest.mark.parametrize(
    ("architecture", "options", "problem", "param"),
    [
        ("llama", {"quantization": "q0f16"}, "must be q0f32 or q4f16_1, got q0f16", "quantization"),
        (
            "llama",
            {"speculative_mode": "prompt_lookup"},
            "speculative_mode must be 'disable', got 'prompt_lookup'",
            "speculative_mode",
        ),
        ("qwen3", {"kv_cache_dtype": "int4"}, "float32 or int8, got int4", "kv_cache_dtype"),
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
    with pytest.raises(BadRequestError, match=f"'cpu:tvm': .*{problem}.*'cpu'$") as caught:
        MLCEngine(tiny_directory(architecture), device=DEVICE, engine_config=config)

    assert caught.value.param == param


async def test_prefixes_are_not_transferred(open_engine: OpenEngine) -> None:
    async with open_engine(DEVICE) as engine:
        with pytest.raises(BadRequestError, match="cannot be transferred"):
            await engine.count_cached_tokens(prompt="Hello")


def test_a_machine_without_a_c_compiler_is_named(
    tiny_directory: Directory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIOMLC_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    config = EngineConfig(quantization="q0f32", num_threads=2)
    with pytest.raises(CompileError, match="needs a C compiler: install gcc or clang"):
        MLCEngine(tiny_directory("llama"), device=DEVICE, engine_config=config)
