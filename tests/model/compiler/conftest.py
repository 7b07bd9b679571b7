"""An empty cache, and compilers to observe."""

from __future__ import annotations

import stat
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import Process

from aiomlc.runtime.native.library import load_native
from aiomlc.workers import process as worker_module
from tests.model.compiler.jobs import Install


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

    monkeypatch.setattr(worker_module, "open_process", record)
    return started
