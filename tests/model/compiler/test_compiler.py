"""The compiler's interface: subprocess, cache, progress and errors."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread
from anyio.abc import Process

from aiomlc.cache import LIBRARIES, staged_entry
from aiomlc.compiler import (
    QUANTIZATIONS,
    CompiledLibrary,
    CompileJob,
    CompileProgress,
    cache,
    compile_model,
)
from aiomlc.models import MlpConfig, RopeConfig, read_description
from aiomlc.models.parameters.packed_layout import packed_bytes
from aiomlc.runtime.native.library import load_native
from tests.model.compiler.jobs import CONFIG, JOB, LAYER, Install, entries
from tests.model.tiny_models import TINY_CONFIGS, write_model


async def _publish(job: CompileJob, content: bytes = b"bytecode") -> CompiledLibrary:
    async with staged_entry(LIBRARIES) as staged:
        (staged.path / cache.LIBRARY_NAME).write_bytes(content)
        (staged.path / cache.METADATA_NAME).write_text('{"vocab_size": 64}')
        return await to_thread.run_sync(cache.publish, staged, job)


FAKE_SUCCESS = """
echo '{"stage": "graph", "fraction": 0.5}'
echo bytecode > "$out/model.vm"
echo '{}' > "$out/metadata.json"
"""


@pytest.mark.parametrize(
    ("architecture", "quantization"),
    [("llama", "q4f16_1"), ("mistral", "q0bf16"), ("qwen2", "q0f32"), ("qwen3", "q4f16_1")],
)
def test_every_architecture_compiles_to_bytecode_that_loads(
    tmp_path: Path, architecture: str, quantization: str
) -> None:
    import tvm_ffi

    config = read_description(write_model(tmp_path / "model", architecture)).config
    stages: list[CompileProgress] = []

    async def run() -> CompiledLibrary:
        job = CompileJob(config=config, quantization=quantization)
        return await compile_model(job, on_progress=stages.append)

    library = anyio.run(run)

    load_native()
    load = tvm_ffi.get_global_func("ffi.Module.load_from_bytes.relax.VMExecutable")
    machine = load(library.code)["vm_load_executable"]()
    machine["vm_initialization"](1, 0, 1)
    assert json.loads(machine["_metadata"]()) == library.metadata
    _check_metadata(library, architecture, quantization)
    assert [stage.stage for stage in stages] == ["import", "graph", "bytecode", "save", "done"]
    assert [stage.fraction for stage in stages] == sorted(stage.fraction for stage in stages)


def _check_metadata(library: CompiledLibrary, architecture: str, quantization: str) -> None:
    metadata, source = library.metadata, TINY_CONFIGS[architecture]
    assert metadata["model_type"] == architecture
    assert metadata["quantization"] == quantization
    assert metadata["kv_dtype"] == QUANTIZATIONS[quantization].kv_dtype
    for field in ("vocab_size", "hidden_size", "num_hidden_layers", "num_key_value_heads"):
        assert metadata[field] == source[field]
    names = [param["name"] for param in metadata["params"]]
    assert names[0] == "model.embed_tokens"
    assert ("lm_head" in names) == (not source["tie_word_embeddings"])
    formats = {param["kind"]: name for param in metadata["params"] for name, _ in param["layout"]}
    assert formats == {"matrix": QUANTIZATIONS[quantization].matrix_format}


def _calls(quantization: str, **changes: Any) -> dict[str, Counter[str]]:  # noqa: ANN401
    """Return for each function of a library how often it calls each kernel and builtin."""
    import tvm_ffi

    load_native()
    load = tvm_ffi.get_global_func("ffi.Module.load_from_file.relax.VMExecutable")
    job = CompileJob(config=replace(CONFIG, **changes), quantization=quantization)
    code: str = load(str(anyio.run(compile_model, job).path))["as_text"]()
    functions = (part.partition(":") for part in re.split(r"(?m)^@", code)[1:])
    return {name: Counter(re.findall(r"call +(\S+)", text)) for name, _, text in functions}


def test_allocations_do_not_grow_with_the_number_of_layers() -> None:
    def allocations(layers: int) -> int:
        functions = _calls("q4f16_1", layers=(LAYER,) * layers).values()
        return sum(calls["vm.builtin.alloc_storage"] for calls in functions)

    assert allocations(7) == allocations(3) > 0


_ATTENTION = "vm.builtin.attention_kv_cache_attention_with_fused_qkv"


@pytest.mark.parametrize(
    ("quantization", "inner", "kernels"),
    [
        (
            "q4f16_1",
            64,
            {"add_norm_linear": 1, "linear": 1, "add_norm_feed_forward_silu": 1},
        ),
        ("q4f16_1", 72, {"add_norm_linear": 2, "linear": 2, "silu_mul": 1}),
        ("q0f32", 64, {"add_rms_norm": 2, "linear": 4, "silu_mul": 1}),
    ],
)
@pytest.mark.parametrize("function", ["batch_prefill", "batch_decode"])
@pytest.mark.sampled(2)
def test_a_layer_calls_the_most_fused_kernels_of_its_format(
    function: str, quantization: str, inner: int, kernels: dict[str, int]
) -> None:
    layer = replace(LAYER, feed_forward=MlpConfig(intermediate_size=inner))
    calls = [_calls(quantization, layers=(layer,) * count)[function] for count in (5, 2)]

    params = {"vm.builtin.tuple_getitem": 6}
    per_layer = {f"aiomlc.cpu.{name}": count for name, count in kernels.items()}
    three_layers = {name: 3 * n for name, n in {**per_layer, **params, _ATTENTION: 1}.items()}
    assert calls[0] - calls[1] == three_layers


def test_a_function_unpacks_only_the_parameters_that_it_reads() -> None:
    calls = _calls("q4f16_1", layers=(LAYER,) * 4)

    assert calls["embed"]["vm.builtin.tuple_getitem"] == 1
    assert calls["batch_decode"]["vm.builtin.tuple_getitem"] == 2 + 4 * 6
    assert calls["batch_decode"]["vm.builtin.make_tuple"] == 1


@pytest.mark.parametrize(
    ("matrix_format", "rows", "columns", "expected"),
    [
        ("q4", 16, 32, 288),
        ("q4", 17, 33, 2 * 2 * 288),
        ("bf16", 17, 3, 2 * 16 * 32 * 2),
        ("f16", 17, 3, 2 * 16 * 3 * 2),
        ("f32", 1, 5, 16 * 5 * 4),
    ],
)
def test_packed_sizes_match_the_native_library(
    matrix_format: Any,  # noqa: ANN401
    rows: int,
    columns: int,
    expected: int,
) -> None:
    import tvm_ffi

    load_native()
    native = tvm_ffi.get_global_func("aiomlc.weights.packed_bytes")

    assert packed_bytes(matrix_format, rows, columns) == expected
    assert native(matrix_format, rows, columns) == expected


def test_a_job_survives_the_json_round_trip() -> None:
    assert CompileJob.from_json(json.loads(json.dumps(JOB.as_json()))) == JOB


async def test_a_cached_library_starts_no_process(
    fake_compiler: Install, processes: list[Process]
) -> None:
    fake_compiler(FAKE_SUCCESS)

    first = await compile_model(JOB)
    second = await compile_model(JOB)

    assert first == second
    assert len(processes) == 1


@pytest.mark.parametrize(
    "other",
    [
        replace(JOB, quantization="q0f32"),
        replace(JOB, config=CONFIG.with_attention(rope=RopeConfig())),
        replace(JOB, max_batch_size=1),
    ],
)
def test_different_jobs_have_different_keys(other: CompileJob) -> None:
    assert cache.library_key(other) != cache.library_key(JOB)
    assert cache.library_key(replace(JOB)) == cache.library_key(JOB)


def test_the_key_depends_on_the_version_of_tvm(monkeypatch: pytest.MonkeyPatch) -> None:
    before = cache.library_key(JOB)

    monkeypatch.setattr("importlib.metadata.version", lambda name: "0.0")

    assert cache.library_key(JOB) != before


async def test_the_first_published_entry_is_kept(home: Path) -> None:
    await _publish(JOB, b"first")

    assert (await _publish(JOB, b"second")).path.read_bytes() == b"first"
    assert len(entries(home)) == 1
