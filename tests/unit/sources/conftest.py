"""A hub with empty caches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fake_hub import FakeHub, running_hub

VARIABLES = ("HF_TOKEN", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HUB_CACHE", "XDG_CACHE_HOME")


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """Run a hub, and make it the one that is asked, with empty caches."""
    for variable in (*VARIABLES, "HUGGINGFACE_HUB_CACHE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("AIOMLC_HOME", str(tmp_path / "home"))
    with running_hub() as fake:
        monkeypatch.setenv("HF_ENDPOINT", fake.endpoint)
        yield fake


@pytest.fixture
def cache(hub: FakeHub, tmp_path: Path) -> Path:
    """Return the cache of huggingface_hub."""
    return tmp_path / "hf" / "hub"
