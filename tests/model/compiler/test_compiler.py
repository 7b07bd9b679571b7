"""The compiler's interface: subprocess, cache, progress and errors."""

from __future__ import annotations

import json
import re
import stat
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread
from anyio.abc import Process

from aiomlc.cache import LIBRARIES, Staged, staged_entry
from aiomlc.compiler import (
    QUANTIZATIONS,
    CompiledLibrary,
    CompileJob,
    CompileProgress,
    cache,
    compile_model,
)
from aiomlc.compiler import compile as compile_module
from aiomlc.errors import CompileError, ModelLoadError
from aiomlc.models import DecoderConfig, RopeConfig, read_description
from aiomlc.models.parameters.packed_layout import packed_bytes
from aiomlc.runtime.native.library import load_native
from tests.model.tiny_models import TINY_CONFIGS, write_model

CONFIG = DecoderConfig(
    model_type="llama",
    vocab_size=64,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=1,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=16,
    context_window_size=128,
    norm_eps=1e-5,
    tie_word_embeddings=True,
    rope=RopeConfig("linear", 10000.0, 2.0),
)
JOB = CompileJob(config=CONFIG, quantization="q4f16_1")
Install = Callable[[str], None]


@pytest.fixture(scope="module", autouse=True)
def _native_library() -> None:
    load_native()


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use an empty cache; return its directory."""
    monkeypatch.setenv("AIOMLC_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def fake_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Return a function that replaces the compiler by a shell script; `$job` is the job file."""

    def install(script: str) -> None:
        path = tmp_path / "compiler"
        path.write_text(f'#!/bin/sh\nfor job; do :; done\nout=$(dirname "$job")\n{script}\n')
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setattr(sys, "executable", str(path))

    return install


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> list[Process]:
    """Record every process that is started."""
    started: list[Process] = []
    original = anyio.open_process

    async def record(*args: Any, **options: Any) -> Process:  # noqa: ANN401
        started.append(await original(*args, **options))
        return started[-1]

    monkeypatch.setattr(compile_module, "open_process", record)
    return started


def _entries(home: Path) -> list[Path]:
    return list((home / "libraries").iterdir()) if (home / "libraries").is_dir() else []


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
    load = tvm_ffi.get_global_func("ffi.Module.load_from_file.relax.VMExecutable")
    machine = load(str(library.path))["vm_load_executable"]()
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
    formats = {param["kind"]: param["format"] for param in metadata["params"]}
    assert formats == {"matrix": QUANTIZATIONS[quantization].matrix_format, "vector": "f32"}


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
        functions = _calls("q4f16_1", num_hidden_layers=layers).values()
        return sum(calls["vm.builtin.alloc_storage"] for calls in functions)

    assert allocations(7) == allocations(3) > 0


_ATTENTION = "vm.builtin.attention_kv_cache_attention_with_fused_qkv"


@pytest.mark.parametrize(
    ("quantization", "inner", "kernels"),
    [
        (
            "q4f16_1",
            64,
            {"add_norm_linear_q4": 1, "linear_q4": 1, "add_norm_feed_forward_silu_q4": 1},
        ),
        ("q4f16_1", 72, {"add_norm_linear_q4": 2, "linear_q4": 2, "silu_mul": 1}),
        ("q0f32", 64, {"add_rms_norm": 2, "linear_f32": 4, "silu_mul": 1}),
    ],
)
@pytest.mark.parametrize("function", ["batch_prefill", "batch_decode"])
def test_a_layer_calls_the_most_fused_kernels_of_its_format(
    function: str, quantization: str, inner: int, kernels: dict[str, int]
) -> None:
    calls = [
        _calls(quantization, num_hidden_layers=layers, intermediate_size=inner)[function]
        for layers in (5, 2)
    ]

    params = {"vm.builtin.tuple_getitem": 6}
    per_layer = {f"aiomlc.cpu.{name}": count for name, count in kernels.items()}
    three_layers = {name: 3 * n for name, n in {**per_layer, **params, _ATTENTION: 1}.items()}
    assert calls[0] - calls[1] == three_layers


def test_a_function_unpacks_only_the_parameters_that_it_reads() -> None:
    calls = _calls("q4f16_1", num_hidden_layers=4)

    assert calls["embed"]["vm.builtin.tuple_getitem"] == 1
    assert calls["batch_decode"]["vm.builtin.tuple_getitem"] == 2 + 4 * 6
    assert calls["batch_decode"]["vm.builtin.make_tuple"] == 1


@pytest.mark.parametrize(
    ("matrix_format", "rows", "columns", "expected"),
    [
        ("q4", 16, 32, 288),
        ("q4", 17, 33, 2 * 2 * 288),
        ("bf16", 17, 3, 2 * 16 * 3 * 2),
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
        replace(JOB, config=replace(CONFIG, rope=RopeConfig())),
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
    assert len(_entries(home)) == 1


async def test_a_cancelled_compilation_leaves_nothing(home: Path, processes: list[Process]) -> None:
    with anyio.CancelScope() as scope:
        await compile_model(JOB, on_progress=lambda _: scope.cancel())

    assert scope.cancelled_caught
    assert processes[0].returncode is not None
    assert _entries(home) == []


async def test_a_compiler_that_ignores_the_signal_is_killed(
    home: Path,
    fake_compiler: Install,
    processes: list[Process],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compile_module, "_GRACE_SECONDS", 0.01)
    fake_compiler(
        'trap \'\' TERM\necho \'{"stage": "graph", "fraction": 0.5}\'\nwhile :; do sleep 0.05; done'
    )

    with anyio.CancelScope() as scope:
        await compile_model(JOB, on_progress=lambda _: scope.cancel())

    assert scope.cancelled_caught
    assert processes[0].returncode == -9
    assert _entries(home) == []


async def test_an_exception_in_on_progress_ends_the_compiler(
    home: Path, processes: list[Process]
) -> None:
    def fail(_: CompileProgress) -> None:
        raise LookupError("callback")

    with pytest.raises(LookupError, match="callback"):
        await compile_model(JOB, on_progress=fail)

    assert processes[0].returncode is not None
    assert _entries(home) == []


async def test_a_compiler_failure_is_reported_with_its_traceback(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_job(staged: Staged, _: CompileJob) -> None:
        (staged.path / cache.JOB_NAME).write_text("{}")

    monkeypatch.setattr(cache, "write_job", write_job)

    with pytest.raises(CompileError, match="KeyError: 'config'") as caught:
        await compile_model(JOB)

    assert "Traceback" in str(caught.value)
    assert _entries(home) == []


async def test_a_killed_compiler_is_reported_with_its_exit_status(
    home: Path, fake_compiler: Install
) -> None:
    fake_compiler("echo last words >&2\nkill -9 $$")

    with pytest.raises(CompileError, match=r"exit status -9\nlast words"):
        await compile_model(JOB)

    assert _entries(home) == []


async def test_an_unsupported_job_is_rejected_before_a_process_starts(
    processes: list[Process],
) -> None:
    with pytest.raises(ModelLoadError, match="must be 'auto' or 'cpu', got 'cuda'") as device:
        await compile_model(replace(JOB, device="cuda"))
    with pytest.raises(
        ModelLoadError, match=r"must be one of q0f32, .* got 'q3f16_1'"
    ) as quantization:
        await compile_model(replace(JOB, quantization="q3f16_1"))

    assert device.value.field == "device"
    assert quantization.value.field == "quantization"
    assert processes == []


def test_a_cache_directory_that_cannot_be_written_is_reported(home: Path) -> None:
    home.write_text("a file is in the way")

    with pytest.raises(ModelLoadError, match="cannot write the cache") as caught:
        anyio.run(compile_model, JOB)

    assert caught.value.path == home / "libraries"
