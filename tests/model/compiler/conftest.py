"""An empty cache, and compilers to observe."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

import pytest
from anyio.abc import Process

from aiomlc.runtime.native.library import load_native
from tests.model.compiler.jobs import Install
from tests.started_processes import record_processes


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
    return record_processes(monkeypatch)
