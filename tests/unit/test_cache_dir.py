"""Tests of the cache directory and of the removal of stale entries."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from aiomlc.cache_dir import cache_home, purge_stale_entries


def test_the_environment_variable_selects_the_cache_directory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AIOMLC_HOME", "/somewhere")

    assert cache_home() == Path("/somewhere")


def test_the_default_is_in_the_users_cache_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIOMLC_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")

    assert cache_home() == Path("/xdg/aiomlc")


def test_leftovers_of_killed_processes_are_removed_after_a_day(tmp_path: Path) -> None:
    for name in (".staged-old", ".staged-new", "entry"):
        (tmp_path / name).mkdir()
    for name in (".staged-old", "entry"):
        os.utime(tmp_path / name, (0, 0))

    purge_stale_entries(tmp_path)

    assert sorted(path.name for path in tmp_path.iterdir()) == [".staged-new", "entry"]
