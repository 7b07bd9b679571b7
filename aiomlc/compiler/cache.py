"""Compiled libraries on disk, by a key of everything that decides what they hold.

An entry appears whole, by one rename, so processes that compile the same model at once do not
disturb each other. An entry that does not match its checksum counts as absent and is replaced.
"""

from __future__ import annotations

__all__ = (
    "JOB_NAME",
    "LIBRARY_NAME",
    "METADATA_NAME",
    "discard",
    "find",
    "library_key",
    "publish",
    "stage",
)

import functools
import hashlib
import json
import os
import shutil
import tempfile
from importlib import metadata
from pathlib import Path

from aiomlc.cache_dir import cache_home, purge_stale_entries
from aiomlc.compiler.job import CompiledLibrary, CompileJob
from aiomlc.errors import CompileError

LIBRARY_NAME = "model.vm"
METADATA_NAME = "metadata.json"
JOB_NAME = "job.json"
_CHECKSUM_NAME = "sha256"


def library_key(job: CompileJob) -> str:
    """The name of the job's entry: a digest of the job, of TVM's versions and of our sources."""
    parts = {
        "job": job.as_json(),
        "apache-tvm": metadata.version("apache-tvm"),
        "apache-tvm-ffi": metadata.version("apache-tvm-ffi"),
        "aiomlc": _sources_digest(),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def find(job: CompileJob) -> CompiledLibrary | None:
    """The job's library, if an intact one is there."""
    return _open(_entry(job))


def stage(job: CompileJob) -> Path:
    """Make a folder beside the entries for one compilation, with the job in it."""
    try:
        _folder().mkdir(parents=True, exist_ok=True)
        purge_stale_entries(_folder())
        directory = Path(tempfile.mkdtemp(prefix=".staged-", dir=_folder()))
        (directory / JOB_NAME).write_text(json.dumps(job.as_json()))
    except OSError as error:
        raise CompileError(
            f"the cache folder {_folder()} cannot be written: {error.strerror}", path=_folder()
        ) from error

    return directory


def publish(staged: Path, job: CompileJob) -> CompiledLibrary:
    """Turn a staged folder into the job's entry."""
    (staged / _CHECKSUM_NAME).write_text(_checksum(staged))
    entry = _entry(job)
    try:
        staged.replace(entry)
    except OSError:
        if (library := _open(entry)) is not None:  # Another process was faster.
            return library

        # A damaged entry is moved away first: a folder cannot be renamed over a full one.
        damaged = Path(tempfile.mkdtemp(prefix=".damaged-", dir=_folder()))
        entry.replace(damaged / entry.name)
        discard(damaged)
        staged.replace(entry)

    library = _open(entry)
    if library is None:
        raise CompileError(f"the library in {entry} was damaged while it was written", path=entry)

    return library


def discard(staged: Path) -> None:
    """Remove a staged folder; one that was published is gone already."""
    shutil.rmtree(staged, ignore_errors=True)


def _folder() -> Path:
    return cache_home() / "libraries"


def _entry(job: CompileJob) -> Path:
    return _folder() / library_key(job)


def _open(entry: Path) -> CompiledLibrary | None:
    try:
        if (entry / _CHECKSUM_NAME).read_text() != _checksum(entry):
            return None

        values = json.loads((entry / METADATA_NAME).read_bytes())
    except OSError:
        return None

    return CompiledLibrary(entry / LIBRARY_NAME, values)


def _checksum(directory: Path) -> str:
    digest = hashlib.sha256()
    for name in (LIBRARY_NAME, METADATA_NAME):
        digest.update((directory / name).read_bytes())
    return digest.hexdigest()


@functools.cache
def _sources_digest() -> str:
    """Changes with the code that compiles, so a developer never runs a stale library."""
    package = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for folder in ("compiler", "models"):
        for path in sorted((package / folder).rglob("*.py")):
            digest.update(os.fsencode(path.relative_to(package)) + b"\0" + path.read_bytes())
    return digest.hexdigest()
