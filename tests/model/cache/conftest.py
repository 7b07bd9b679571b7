"""An empty cache and the native library."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiomlc.runtime.native.library import load_native


@pytest.fixture(scope="module", autouse=True)
def _native_library() -> None:
    load_native()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use an empty cache; return its directory."""
    monkeypatch.setenv("AIOMLC_HOME", str(tmp_path / "home"))
    return tmp_path / "home"
