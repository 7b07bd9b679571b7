"""KV caches of every dtype: their error, size and equal output in batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from anyio import create_task_group
from numpy.typing import NDArray

from aiomlc import AsyncMLCEngine, BadRequestError, EngineConfig, MLCEngine, plan_memory
from aiomlc.config import KVCacheType
from aiomlc.runtime.native.model import NativeModel
from tests.model.conftest import OpenTiny
from tests.model.tiny_encoder import write_encoder
from tests.model.tiny_models import DISTINCT, FORKED_ANYWHERE, TINY_CONFIGS

Directory = Callable[[str], Path]
Logits = NDArray[np.float32]

#: Tiny models whose heads an int4 cache supports, with windows, sinks, soft caps, recurrent layers.
ROTATED = ("qwen3", "mistral_window", "gemma2", "gpt_oss", "qwen3_5_text", "qwen3_next")
#: Tiny models whose heads a bfloat16 cache supports, and which have windows, sinks or soft caps.
PAIRED = ("qwen3", "gemma2", "gemma3_text", "gpt_oss", "llama")

TOKENS = [(7 * i * i + 3 * i) % 256 for i in range(80)]


def _last_logits(model: NativeModel, chunk_sizes: Sequence[int]) -> Logits:
    """Return the logits after all of TOKENS, prefilled in chunks."""
    model.add_sequence(0)
    start = 0
    for size in chunk_sizes:
        logits: Logits = model.forward([(0, TOKENS[start : start + size])])[0]
        start += size
    model.remove_sequence(0)
    return logits


# q4f16_1 rounds activations to 8 bits, where a small difference can become a whole level.
@pytest.mark.parametrize(
    ("architecture", "quantization", "kv_cache_dtype", "limit"),
    [
        ("qwen3", "q0f32", "float32", 0),
        ("qwen3", "q0f32", "float16", 2e-3),
        ("qwen3", "q4f16_1", "float16", 0),
        ("qwen3", "q4f16_1", "float32", 3e-2),
        ("qwen3", "q0bf16", "float16", 1e-2),
        *((architecture, "q0f32", "bfloat16", 1e-2) for architecture in PAIRED),
        *((architecture, "q4f16_1", "bfloat16", 4e-2) for architecture in PAIRED),
        *((architecture, "q0f32", "int8", 2e-2) for architecture in DISTINCT),
        *((architecture, "q4f16_1", "int8", 4e-2) for architecture in TINY_CONFIGS),
        *((architecture, "q0f32", "int4", 0.35) for architecture in ROTATED),
        *((architecture, "q4f16_1", "int4", 0.35) for architecture in ROTATED),
    ],
)
@pytest.mark.sampled(12)
def test_logits_are_close_to_those_of_the_default_cache(
    open_tiny: OpenTiny,
    architecture: str,
    quantization: str,
    kv_cache_dtype: KVCacheType,
    limit: float,
) -> None:
    reference = _last_logits(open_tiny(architecture, quantization), [80])

    logits = _last_logits(open_tiny(architecture, quantization, kv_cache_dtype), [80])

    difference = np.linalg.norm(logits - reference) / np.linalg.norm(reference)
    assert difference <= limit
    assert (difference > 0) == (limit > 0)


@pytest.mark.parametrize(
    ("architecture", "quantization", "kv_cache_dtype"),
    [
        *product(FORKED_ANYWHERE, ("q4f16_1",), ("int8",)),
        *product([name for name in DISTINCT if name in FORKED_ANYWHERE], ("q0f32",), ("int8",)),
        *product(
            [name for name in PAIRED if name in FORKED_ANYWHERE], ("q0bf16", "w4a8"), ("bfloat16",)
        ),
        *product(
            [name for name in ROTATED if name in FORKED_ANYWHERE], ("q0f32", "q4f16_1"), ("int4",)
        ),
    ],
)
def test_chunks_and_forks_are_bit_identical_to_one_prefill(
    open_tiny: OpenTiny, architecture: str, quantization: str, kv_cache_dtype: KVCacheType
) -> None:
    model = open_tiny(architecture, quantization, kv_cache_dtype)
    free = model.free_pages()
    expected = _last_logits(model, [80])

    for chunk_sizes in ([1] * 80, [79, 1], [1, 79], [16, 16, 48], [13, 37, 1, 29]):
        np.testing.assert_array_equal(_last_logits(model, chunk_sizes), expected)
    model.add_sequence(1)
    model.forward([(1, TOKENS[:50])])
    for position in (1, 15, 16, 17, 32, 49, 50):
        model.fork_sequence(1, 2, position)
        np.testing.assert_array_equal(model.forward([(2, TOKENS[position:])])[0], expected)
        model.remove_sequence(2)
    model.remove_sequence(1)

    assert model.free_pages() == free


@pytest.mark.parametrize("quantization", ["q4f16_1", "q0f32"])
def test_bytes_per_token_depend_on_the_cache_dtype(
    tiny_directory: Directory, quantization: str
) -> None:
    def bytes_per_token(kv_cache_dtype: KVCacheType) -> int:
        config = EngineConfig(quantization=quantization, kv_cache_dtype=kv_cache_dtype)
        return plan_memory(tiny_directory("qwen3"), engine_config=config).kv_bytes_per_token

    config = TINY_CONFIGS["qwen3"]
    rows = 2 * config["num_hidden_layers"] * config["num_key_value_heads"]

    assert bytes_per_token("float32") == rows * 4 * config["head_dim"]
    assert bytes_per_token("float16") == rows * 2 * config["head_dim"]
    assert bytes_per_token("bfloat16") == bytes_per_token("float16")
    assert bytes_per_token("int8") == rows * (config["head_dim"] + 4)
    assert bytes_per_token("int4") == rows * (config["head_dim"] // 2 + 4)
    assert bytes_per_token("auto") == bytes_per_token(
        "float32" if quantization == "q0f32" else "float16"
    )


def test_kv_cache_dtype_of_an_encoder_is_rejected(model_cache: Path, tmp_path: Path) -> None:
    encoder = write_encoder(tmp_path / "encoder")

    with (
        pytest.raises(BadRequestError) as caught,
        MLCEngine(encoder, engine_config=EngineConfig(kv_cache_dtype="int8")),
    ):
        pass

    assert caught.value.param == "kv_cache_dtype"


@pytest.mark.parametrize("architecture", ["llama", "phi3", "gemma4_text"])
def test_an_int4_cache_of_heads_that_cannot_be_rotated_is_rejected(
    tiny_directory: Directory, architecture: str
) -> None:
    config = EngineConfig(kv_cache_dtype="int4")

    with pytest.raises(BadRequestError, match=r"heads of a multiple of 32.*use 'int8'") as caught:
        plan_memory(tiny_directory(architecture), engine_config=config)

    assert caught.value.param == "kv_cache_dtype"


# ---- The engine ----

# Prompts of 30 to 130 tokens with a common prefix, whose repetitions let prompt lookup succeed.
PROMPTS = [("The fox and the crow. " * 6)[: 20 * i] for i in range(1, 7)]


def _requests() -> list[dict[str, Any]]:
    options: list[dict[str, Any]] = [{"temperature": 0}, {"temperature": 1.1, "seed": 5}]
    once = [
        {"messages": [{"role": "user", "content": text}], "max_tokens": 60} | option
        for text in PROMPTS
        for option in options
    ]
    return once + once


@pytest.mark.parametrize(
    ("architecture", "kv_cache_dtype"),
    [("llama", "int8"), ("mistral_window", "int8"), ("mistral_window", "int4"), ("qwen3", "int4")],
)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"step_token_budget": 7, "max_num_sequence": 4},
        {"max_total_sequence_length": 640, "prefix_cache_max_num_recycling_seqs": 5},
        {"speculative_mode": "prompt_lookup", "spec_draft_length": 9},
    ],
)
async def test_output_of_a_cache_of_integers_does_not_depend_on_batching_or_scheduling(
    model_cache: Path,
    tiny_directory: Directory,
    architecture: str,
    kv_cache_dtype: KVCacheType,
    options: dict[str, Any],
) -> None:
    requests = _requests()
    batched: list[str | None] = [None] * len(requests)

    def open_engine(**fields: Any) -> AsyncMLCEngine:  # noqa: ANN401
        config = EngineConfig(
            quantization="q4f16_1", kv_cache_dtype=kv_cache_dtype, num_threads=2, **fields
        )
        return AsyncMLCEngine(tiny_directory(architecture), engine_config=config)

    async def complete(engine: AsyncMLCEngine, index: int) -> None:
        completion = await engine.chat.completions.create(**requests[index])
        batched[index] = completion.choices[0].message.content

    async with open_engine(prefix_cache_mode="disable", max_num_sequence=1) as engine:
        expected = [await engine.chat.completions.create(**request) for request in requests]
    async with open_engine(**options) as engine:
        async with create_task_group() as tasks:
            for index in range(len(requests)):
                tasks.start_soon(complete, engine, index)
        statistics = engine.statistics()

    assert batched == [completion.choices[0].message.content for completion in expected]
    assert statistics.prefix_cache_hits > 0
    assert statistics.free_pages == statistics.total_pages
