"""The commands `aiomlc cache list`, `verify` and `clear`."""

from __future__ import annotations

import os
import re
from pathlib import Path

import anyio
import pytest
from anyio import to_thread
from typer.testing import CliRunner, Result

from aiomlc.cache import WEIGHTS, Entry, publish, staged_entry
from aiomlc.cache.removal import LOCK_NAME
from aiomlc.cli.app import app

pytestmark = pytest.mark.usefixtures("home")


def _no_checkpoint() -> None:
    pass


async def _publish(key: str, content: bytes) -> Entry:
    async with staged_entry(WEIGHTS) as staged:
        (staged.path / "params.bin").write_bytes(content)
        info = {"model": f"/models/{key}", "quantization": "q4f16_1"}
        return await to_thread.run_sync(publish, staged, key, info, _no_checkpoint)


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["cache", *arguments])


def test_an_empty_cache_has_no_table(home: Path) -> None:
    assert _run("list").stdout == f"0 B of 100 GB in {home}\n"


def test_the_list_has_the_model_the_size_and_the_last_use(home: Path) -> None:
    path = anyio.run(_publish, "llama", bytes(2_500_000)).path
    os.utime(path / "state.json", (1e9, 1e9))

    header, line, total = _run("list").stdout.splitlines()

    assert re.split(r"  +", header) == ["kind", "model", "quantization", "size", "last used"]
    assert re.split(r"  +", line)[:4] == ["weights", "/models/llama", "q4f16_1", "2.5 MB"]
    assert "2001-09-0" in line
    assert total == f"2.5 MB of 100 GB in {home}"


def test_an_intact_cache_is_verified() -> None:
    anyio.run(_publish, "llama", b"content")

    result = _run("verify")

    assert result.exit_code == 0
    assert re.fullmatch(r"1 entry, \d+ B, 0 damaged\n", result.stdout)


def test_damage_is_found_although_the_file_was_verified_before() -> None:
    path = anyio.run(_publish, "llama", b"content").path
    (path / "params.bin").chmod(0o644)
    (path / "params.bin").write_bytes(b"c0ntent")

    result = _run("verify")

    assert result.exit_code == 1
    assert f"damaged: {path}: params.bin does not match its checksum\n" in result.stdout


def test_clear_removes_all_entries_that_are_not_in_use() -> None:
    used = anyio.run(_publish, "used", b"content")
    path = anyio.run(_publish, "unused", b"content").path

    lines = _run("clear").stdout.splitlines()

    assert [line.partition(",")[0] for line in lines] == ["removed 1 entry", "kept 1 entry"]
    assert used.path.exists()
    assert not path.exists()


def test_clear_removes_what_interrupted_conversions_have_left(home: Path) -> None:
    leftover = home / "weights" / ".staged-gone"
    leftover.mkdir(parents=True)
    (leftover / LOCK_NAME).touch()

    _run("clear")

    assert not leftover.exists()


def test_clear_can_keep_what_was_used_lately() -> None:
    old, new = (anyio.run(_publish, key, b"content").path for key in ("old", "new"))
    os.utime(old / "state.json", (1e9, 1e9))

    assert _run("clear", "--older-than", "30d").stdout.startswith("removed 1 entry,")
    assert not old.exists()
    assert new.exists()


@pytest.mark.parametrize("age", ["30", "-1d", "d", "1 year"])
def test_an_invalid_age_is_refused(age: str) -> None:
    result = _run("clear", "--older-than", age)

    assert result.exit_code == 2
    assert "--older-than must be a time such as 12h, 30d or 8w" in result.stderr


def test_an_invalid_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIOMLC_CACHE_LIMIT", "a lot")

    result = _run("list")

    assert result.exit_code == 2
    assert "AIOMLC_CACHE_LIMIT must be a size" in result.stderr
