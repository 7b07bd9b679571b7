"""A hub with empty caches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fake_hub import FakeHub, hub_in_use
from tests.unit.sources.downloads import FILES, NAME, Download


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """Run a hub, and make it the one that is asked, with empty caches."""
    monkeypatch.setenv("AIOMLC_HOME", str(tmp_path / "home"))
    with hub_in_use(tmp_path) as fake:
        yield fake


@pytest.fixture
def cache(hub: FakeHub, tmp_path: Path) -> Path:
    """Return the cache of huggingface_hub."""
    return tmp_path / "hf" / "hub"


@pytest.fixture
def download(hub: FakeHub, cache: Path) -> Download:
    """Return a download of a repository."""
    hub.add(NAME, FILES)
    return Download(hub, cache)


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Record the waits of the downloading process, run in this one, instead of waiting."""
    waited: list[float] = []
    monkeypatch.setattr("aiomlc.sources.hub.time.sleep", waited.append)
    return waited
