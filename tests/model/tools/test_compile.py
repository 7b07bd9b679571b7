"""A compiled library opens without a compiler, and only where it is the right one."""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import anyio
import pytest

from aiomlc import (
    AsyncMLCEngine,
    BadRequestError,
    EngineConfig,
    JSONFFIEngine,
    MLCEngine,
    ModelLoadError,
    SyncMLCEngine,
)
from aiomlc.cache import WEIGHTS
from aiomlc.cache.maintenance import list_entries
from aiomlc.cli.options.overrides import parse_overrides
from aiomlc.cli.terminal.failures import CommandError
from aiomlc.compiler import compile as compiler
from aiomlc.compiler import read_library
from aiomlc.runtime.loading.facts import ModelFacts
from aiomlc.runtime.loading.model_directory import find_model
from aiomlc.runtime.loading.prepare import compile_job
from aiomlc.runtime.native.device import HostDevice
from aiomlc.tools.compile_library import compile_model
from tests.model.tools.models import write_tiny

pytestmark = pytest.mark.anyio

_SMALL = EngineConfig(max_num_sequence=2, max_total_sequence_length=256, num_threads=1)
_NUM_MUTATIONS = int(os.environ.get("AIOMLC_EXAMPLES", "80"))
_MANIFEST = "aiomlc-library.json"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("tiny") / "llama", "llama")


@pytest.fixture(scope="module")
def compiled(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile the library once, from a copy of the model without its weights."""
    directory = tmp_path_factory.mktemp("compiled")
    description = Path(shutil.copytree(model, directory / "llama"))
    (description / "model.safetensors").unlink()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIOMLC_HOME", str(directory / "home"))
        return anyio.run(compile_model, description, directory / "llama.lib")


@pytest.fixture
def library(compiled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of the library, with an empty cache and a compiler that fails."""
    monkeypatch.setenv("AIOMLC_HOME", str(tmp_path / "home"))

    async def fail(*_: object) -> None:
        raise AssertionError("the library must not be compiled")

    monkeypatch.setattr(compiler, "_run_compiler", fail)
    return Path(shutil.copy(compiled, tmp_path / "llama.lib"))


async def test_an_engine_opens_without_a_compiler(model: Path, library: Path) -> None:
    async with AsyncMLCEngine(model, model_lib=library, engine_config=_SMALL) as engine:
        assert engine.engine_config.model_lib == str(library)
        completion = await engine.completions.create(prompt="a", max_tokens=3)

    assert completion.usage is not None
    assert completion.usage.completion_tokens == 3


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("engine", [MLCEngine, SyncMLCEngine, JSONFFIEngine])
async def test_every_engine_opens_a_library(
    model: Path, library: Path, engine: Callable[..., Any]
) -> None:
    opened = engine(model, model_lib=library, engine_config=_SMALL)
    opened.terminate()


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_another_setting_is_named(model: Path, library: Path) -> None:
    config = EngineConfig(kv_cache_dtype="int8", sliding_window_size=64)

    with pytest.raises(ModelLoadError, match="not the one that this engine needs") as caught:
        async with AsyncMLCEngine(model, model_lib=library, engine_config=config):
            pass

    assert caught.value.field == "model_lib"
    assert caught.value.path == library
    message = str(caught.value)
    assert "; kv_cache_dtype is 'auto' in the library and must be 'int8'" in message
    assert "config.layers[0].mixer.window is 0 in the library and must be 64" in message
    assert "compile it again: aiomlc compile MODEL" in message


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize(
    ("architecture", "problem"),
    [
        ("qwen3", r"; config\.layers has 3 items in the library and must have 2; "),
        ("gemma2", r"config\.\w+ is .* and must be .*; and \d+ more\."),
    ],
)
async def test_the_library_of_another_model_is_refused(
    library: Path, tmp_path: Path, architecture: str, problem: str
) -> None:
    other = write_tiny(tmp_path / "other", architecture)

    with pytest.raises(ModelLoadError, match=problem):
        async with AsyncMLCEngine(other, model_lib=library):
            pass


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("part", ["apache-tvm", "apache-tvm-ffi", "aiomlc"])
async def test_a_stale_library_is_refused(model: Path, library: Path, part: str) -> None:
    rewrite(library, _MANIFEST, lambda text: json.dumps({**json.loads(text), part: "0.1"}))

    with pytest.raises(ModelLoadError, match=f"{part} is '0.1' in the library and must be"):
        async with AsyncMLCEngine(model, model_lib=library):
            pass


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (_MANIFEST, "[1", "not a library of aiomlc"),
        (_MANIFEST, "[]", "must be an object"),
        ("model.vm", None, "the library is damaged: KeyError: \"There is no item named 'model.vm'"),
        (None, "", "not a library of aiomlc"),
        (None, "garbage", "not a library of aiomlc"),
    ],
)
async def test_a_damaged_library_is_refused(
    model: Path, library: Path, name: str | None, content: str | None, message: str
) -> None:
    if name is not None:
        rewrite(library, name, lambda _: content)
    else:
        await anyio.Path(library).write_text(content or "")

    with pytest.raises(ModelLoadError, match=message):
        async with AsyncMLCEngine(model, model_lib=library):
            pass


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_what_is_passed_never_enters_the_cache(model: Path, library: Path) -> None:
    async with AsyncMLCEngine(model, model_lib=library, engine_config=_SMALL):
        entries = list_entries()

    assert [entry.stored.kind for entry in entries] == [WEIGHTS]


def test_a_mutated_library_is_refused_or_the_same(model: Path, library: Path) -> None:
    """No mutation reaches TVM, which does not check what it executes."""
    job = compile_job(
        ModelFacts(find_model(model), _SMALL.quantization), "cpu", _SMALL, HostDevice()
    )
    intact, whole = read_library(library, job), library.read_bytes()
    refused = 0
    for seed in range(_NUM_MUTATIONS):
        random = Random(seed)
        member = random.choice(("model.vm", "metadata.json", _MANIFEST, None))
        library.write_bytes(whole if member else mutated(whole, random))
        if member:
            rewrite(library, member, partial(mutated_text, random=random))
        try:
            assert read_library(library, job) == intact, f"seed {seed}: {member}"
        except ModelLoadError as error:
            refused += 1
            assert error.path == library  # noqa: PT017 - most are refused, not all.
    assert refused > _NUM_MUTATIONS // 2


def mutated_text(text: str, random: Random) -> str:
    return mutated(text.encode("latin-1"), random).decode("latin-1")


def mutated(data: bytes, random: Random) -> bytes:
    """Return bytes with some changed, cut out, or inserted."""
    begin = random.randrange(len(data))
    end = min(len(data), begin + random.choice((1, 2, 4, 8, 1000)))
    changed = random.choice((random.randbytes(end - begin), b"", bytes(end - begin), data[:end]))
    return data[:begin] + changed + data[random.choice((begin, end)) :]


def rewrite(library: Path, changed: str, change: Callable[[str], str | None]) -> None:
    """Change a file of a library; None removes it."""
    with zipfile.ZipFile(library) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(library, "w") as archive:
        for name, data in files.items():
            text = data.decode("latin-1")
            content = change(text) if name == changed else text
            if content is not None:
                archive.writestr(name, content.encode("latin-1"))


async def test_the_overrides_are_settings_of_the_engine(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIOMLC_HOME", str(tmp_path / "home"))
    overrides = {
        "context_window_size": 256,
        "sliding_window_size": 64,
        "attention_sink_size": 4,
        "kv_cache_dtype": "int8",
        "max_batch_size": 8,
        "tensor_parallel_shards": 1,
    }
    library = await compile_model(
        model, tmp_path / "a.lib", quantization="q0bf16", overrides=overrides
    )
    config = EngineConfig(
        quantization="q0bf16",
        max_single_sequence_length=256,
        sliding_window_size=64,
        attention_sink_size=4,
        kv_cache_dtype="int8",
        num_threads=1,
    )

    async with AsyncMLCEngine(model, model_lib=library, engine_config=config) as engine:
        assert engine.engine_config.model_lib == str(library)
        await engine.reload(model)
        assert engine.engine_config.model_lib is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"opt": "O9"}, "opt must be one of O0, O1, O2, O3, got 'O9'"),
        ({"overrides": {"bits": 3}}, "overrides must be among .*; got 'bits'"),
        ({"overrides": {"tensor_parallel_shards": 2}}, "shards = 2 is not possible for this model"),
        ({"overrides": {"sliding_window_size": "x"}}, "sliding_window_size"),
        ({"model_type": "qwen2"}, "model_type is 'qwen2', but the model's is 'llama'"),
        ({"model_type": "gpt5"}, "model_type must be auto or one of"),
    ],
)
async def test_invalid_arguments_are_refused(
    model: Path, tmp_path: Path, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadRequestError, match=message):
        await compile_model(model, tmp_path / "a.lib", **arguments)

    assert not (tmp_path / "a.lib").exists()


async def test_an_existing_file_is_only_replaced_by_force(model: Path, tmp_path: Path) -> None:
    (tmp_path / "a.lib").write_text("mine")

    with pytest.raises(BadRequestError, match="already exists"):
        await compile_model(model, tmp_path / "a.lib")
    with pytest.raises(BadRequestError, match="must be a file in an existing directory"):
        await compile_model(model, tmp_path / "none" / "a.lib")

    assert (tmp_path / "a.lib").read_text() == "mine"


def test_overrides_are_parsed_as_mlc_llm_writes_them() -> None:
    assert parse_overrides("sliding_window_size=-1; kv_cache_dtype=int8;") == {
        "sliding_window_size": -1,
        "kv_cache_dtype": "int8",
    }
    with pytest.raises(CommandError, match="a setting must be 'name=value', got 'x'"):
        parse_overrides("x")
