"""Fixtures of the weight tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiomlc.runtime.native.library import load_native


@pytest.fixture(scope="module", autouse=True)
def _native_library() -> None:
    load_native()


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty model directory, and use an empty cache."""
    monkeypatch.setenv("AIOMLC_HOME", str(tmp_path / "home"))
    path = tmp_path / "model"
    path.mkdir()
    return path
