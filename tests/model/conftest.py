"""Tiny models, compiled and packed once per session."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from anyio import to_thread

import aiomlc.compiler.compile as compile_model
from aiomlc.compiler.compile import OnProgress
from aiomlc.config import EngineConfig, KVCacheType
from aiomlc.runtime.native.model import NativeModel
from benchmarks.native_model import open_native_model
from tests.model.compiler_process import CompilerProcess
from tests.model.tiny_models import write_model

OpenTiny = Callable[..., NativeModel]


@pytest.fixture(scope="session")
def model_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Use a temporary cache directory for the session; return it.

    The processes of pytest-xdist share it, so that each model is compiled once. One process
    compiles all that it lacks.
    """
    root = tmp_path_factory.getbasetemp()
    is_worker = "PYTEST_XDIST_WORKER" in os.environ
    home = (root.parent if is_worker else root) / "aiomlc_home"
    home.mkdir(exist_ok=True)
    run_compiler = compile_model._run_compiler

    async def run_shared(staged: Path, on_progress: OnProgress | None) -> None:
        if staged.is_relative_to(home):
            await to_thread.run_sync(compiler.compile, staged)
        else:
            await run_compiler(staged, on_progress)

    with pytest.MonkeyPatch.context() as patch, CompilerProcess() as compiler:
        patch.setenv("AIOMLC_HOME", str(home))
        patch.setattr(compile_model, "_run_compiler", run_shared)
        yield home


@pytest.fixture(scope="session")
def tiny_directory(
    model_cache: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Path]:
    """Return a function that writes a tiny model and returns its directory."""
    root = tmp_path_factory.mktemp("tiny_models")
    return lambda architecture: write_model(root / architecture, architecture)


@pytest.fixture(scope="session")
def open_tiny(tiny_directory: Callable[[str], Path]) -> OpenTiny:
    """Return a function that opens a tiny model, or a directory, by its four arguments."""
    opened: dict[tuple[str | Path, str, KVCacheType, str], NativeModel] = {}

    def open_one(
        architecture: str | Path,
        quantization: str,
        kv_cache_dtype: KVCacheType = "auto",
        device: str = "auto",
    ) -> NativeModel:
        key = (architecture, quantization, kv_cache_dtype, device)
        if key not in opened:
            if isinstance(architecture, str):
                architecture = tiny_directory(architecture)
            config = EngineConfig(
                quantization=quantization, kv_cache_dtype=kv_cache_dtype, num_threads=2
            )
            opened[key] = open_native_model(architecture, config, device).native
        return opened[key]

    return open_one
