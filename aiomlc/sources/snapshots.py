"""Snapshots in the cache of huggingface_hub, and the records of those that are complete.

A snapshot is a directory of links to blobs, which other programs may fill with other files. So what
was downloaded completely and matched its hashes is recorded in our own cache, with the stamps of
the files: while these are the same, nothing is asked or read again.
"""

from __future__ import annotations

__all__ = (
    "Snapshot",
    "cached_commit",
    "find_snapshot",
    "forget_snapshot",
    "is_unchanged",
    "last_use",
    "modification_time",
    "record_snapshot",
    "recorded_files",
    "repository_folder",
    "stamp_file",
)

import hashlib
import logging
import os
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiomlc.cache.files import Stamp, read_sealed, stamp_of, write_sealed
from aiomlc.cache.home import cache_homes

_FOLDER = "downloads"

_logger = logging.getLogger("aiomlc")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The files of a model at one commit, complete and intact."""

    directory: Path
    commit: str
    checked: float  #: When the hub was last asked for the commit, in seconds since the epoch.


def repository_folder(cache: Path, repository: str) -> Path:
    """Return the directory of a repository in the cache of huggingface_hub."""
    return cache / f"models--{repository.replace('/', '--')}"


def cached_commit(folder: Path, revision: str) -> str | None:
    """Return the commit that a branch or tag had when the hub was last asked; None if never."""
    with suppress(OSError, ValueError):
        return (folder / "refs" / revision).read_text("ascii").strip() or None
    return None


def find_snapshot(folder: Path, commit: str, file: str | None) -> Snapshot | None:
    """Return a snapshot that was recorded as complete and has not changed since.

    Args:
        file: The GGUF file, or None for the files of a model directory.
    """
    directory = folder / "snapshots" / commit
    for path, record in _records(directory, file):
        if all(is_unchanged(directory / name, stamp) for name, stamp in record["files"].items()):
            with suppress(OSError):  # A read-only cache.
                os.utime(path)
            return Snapshot(directory, commit, record["checked"])

    return None


def recorded_files(directory: Path, file: str | None) -> Mapping[str, Stamp]:
    """Return the stamps of the files of a snapshot when their hashes were last computed."""
    for _, record in _records(directory, file):
        files: Mapping[str, Stamp] = record["files"]
        return files

    return {}


def record_snapshot(
    directory: Path, file: str | None, files: Mapping[str, Stamp], *, checked: bool
) -> None:
    """Record that the files of a snapshot are complete and intact.

    Args:
        file: The GGUF file, or None for the files of a model directory.
        files: The stamp of each file when its hash was computed.
        checked: Whether the hub was asked for the commit.
    """
    path = _record_path(cache_homes()[-1], directory, file)
    record = {"files": dict(files), "checked": time.time() if checked else 0.0}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_sealed(path, record)
    except OSError as error:  # The files are verified again next time.
        _logger.debug("cannot write %s: %s", path, error)


def forget_snapshot(directory: Path, file: str | None = None) -> None:
    """Remove the record of a snapshot that is being removed."""
    for home in cache_homes():
        with suppress(OSError):
            _record_path(home, directory, file).unlink(missing_ok=True)


def last_use(directory: Path, file: str | None) -> float:
    """Return when a snapshot was last used, in seconds since the epoch, as far as it is known.

    0 if it was removed in the meantime.
    """
    for home in cache_homes():
        with suppress(OSError):
            return _record_path(home, directory, file).stat().st_mtime
    return modification_time(directory if file is None else directory / file)


def modification_time(path: Path) -> float:
    """Return when a file was modified, in seconds since the epoch; 0 if it does not exist."""
    try:
        return path.lstat().st_mtime
    except OSError:
        return 0.0


def stamp_file(path: Path) -> Stamp:
    """Return the stamp of the blob that a file of a snapshot links to.

    Raises:
        OSError: If it is missing.
    """
    return stamp_of(path.stat())


def is_unchanged(path: Path, stamp: Stamp) -> bool:
    """Return whether a regular file has a stamp."""
    try:
        status = path.stat()
    except OSError:
        return False

    return stat.S_ISREG(status.st_mode) and stamp_of(status) == stamp


def _records(directory: Path, file: str | None) -> Iterator[tuple[Path, dict[str, Any]]]:
    for home in cache_homes():
        path = _record_path(home, directory, file)
        with suppress(OSError, ValueError):  # Missing or damaged: the files are verified again.
            yield path, read_sealed(path)


def _record_path(home: Path, directory: Path, file: str | None) -> Path:
    name = os.fsencode(f"{directory.resolve()}\0{file or ''}")
    return home / _FOLDER / f"{hashlib.sha256(name).hexdigest()[:32]}.json"
