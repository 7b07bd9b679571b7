"""The directory of the cache, with and without a home directory."""

from __future__ import annotations

import errno
import logging
import os
import tempfile
from pathlib import Path

import pytest

from aiomlc.cache import home
from aiomlc.cache.home import cache_error, cache_home, cache_homes
from aiomlc.errors import BadRequestError, ModelLoadError


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use no variables and an empty temporary directory; return the latter."""
    for name in ("AIOMLC_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    directory = tmp_path / "tmp"
    directory.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    home._warn_once.cache_clear()
    return directory


def test_the_environment_variable_selects_the_cache_directory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AIOMLC_HOME", "/somewhere")

    assert cache_homes() == (Path("/somewhere"),)


def test_a_relative_directory_is_made_absolute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIOMLC_HOME", "somewhere")

    assert cache_home() == Path.cwd() / "somewhere"


def test_the_home_of_an_unknown_user_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIOMLC_HOME", "~nosuchuser/x")

    with pytest.raises(BadRequestError, match="no such user") as caught:
        cache_home()

    assert caught.value.param == "AIOMLC_HOME"


def test_the_default_is_in_the_users_cache_directory(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(temporary / "xdg"))

    assert cache_homes() == (temporary / "xdg" / "aiomlc",)


def test_without_a_home_directory_a_private_temporary_one_is_used(
    temporary: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(home, "user_cache_path", lambda *_, **__: Path("~/.cache/aiomlc"))

    with caplog.at_level(logging.WARNING, "aiomlc"):
        directories = {cache_home(), cache_home()}

    (directory,) = directories
    assert directory.parent == temporary
    assert directory.stat().st_mode & 0o777 == 0o700
    (record,) = caplog.records
    assert "set AIOMLC_HOME" in record.getMessage()


def test_entries_are_read_from_a_home_that_cannot_be_written(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = temporary / "file"
    blocked.touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))

    default, written = cache_homes()

    assert default == blocked / "aiomlc"
    assert written.parent == temporary


@pytest.mark.parametrize("problem", ["link", "shared", "file"])
def test_a_temporary_directory_of_others_is_refused(
    temporary: Path, monkeypatch: pytest.MonkeyPatch, problem: str
) -> None:
    monkeypatch.setattr(home, "user_cache_path", lambda *_, **__: Path("~/.cache/aiomlc"))
    path = cache_home()
    path.rmdir()
    if problem == "link":
        path.symlink_to(temporary)
    elif problem == "file":
        path.touch()
    else:
        path.mkdir()
        path.chmod(0o755)

    with pytest.raises(ModelLoadError, match="set AIOMLC_HOME to a directory") as caught:
        cache_home()

    assert caught.value.field == "AIOMLC_HOME"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_the_error_of_a_full_disk_says_how_to_free_space(number: int) -> None:
    error = cache_error(Path("entry"), OSError(number, os.strerror(number)))

    assert str(error) == (
        f"entry: cannot write the cache: {os.strerror(number)}; free some space, for example with "
        "`aiomlc cache clear`, or set AIOMLC_HOME to a directory on another disk"
    )
