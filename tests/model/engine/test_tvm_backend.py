"""The second back end: what the interface of back ends promises holds for code of TVM, too."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aiomlc import AsyncMLCEngine, BadRequestError, CompileError, EngineConfig, MLCEngine
from aiomlc.runtime.native.model import NativeModel
from tests.model.device_logits import (
    check_batch,
    check_forks,
    check_logits,
    check_storage,
)
from tests.model.engine_answers import (
    OpenEngine,
    check_bundled_model,
    check_cancellation,
    check_preemption,
    check_refusal,
    check_shared_prefixes,
)
from tests.model.families.test_piece_logits import REFERENCE, answers, check, open_core
from tests.model.tiny_pieces import PROMPTS
from tests.model.tiny_pieces import write_model as write_pieces

OpenTiny = Callable[..., NativeModel]
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


async def test_batches_and_the_prefix_cache_keep_the_native_answers(
    open_engine: OpenEngine,
) -> None:
    await check_shared_prefixes(open_engine, DEVICE, min_cached=500)


async def test_preempted_sequences_keep_the_native_answers(open_engine: OpenEngine) -> None:
    await check_preemption(open_engine, DEVICE)


async def test_a_cancelled_request_frees_its_pages(open_engine: OpenEngine) -> None:
    await check_cancellation(open_engine, DEVICE)


@pytest.mark.usefixtures("model_cache")
def test_the_bundled_model_has_the_native_answers() -> None:
    check_bundled_model(DEVICE)


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
    check_refusal(tiny_directory(architecture), DEVICE, options, problem, param)


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
