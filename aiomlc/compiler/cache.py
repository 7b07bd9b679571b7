"""The cache of compiled libraries, keyed by everything that determines their content.

An entry is published by a single rename, so processes that compile the same model at the same time
do not interfere. An entry that does not match its checksum counts as absent and is replaced.
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
    """Return the name of the job's entry: a digest of the job and of TVM's and aiomlc's code."""
    parts = {
        "job": job.as_json(),
        "apache-tvm": metadata.version("apache-tvm"),
        "apache-tvm-ffi": metadata.version("apache-tvm-ffi"),
        "aiomlc": _sources_digest(),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def find(job: CompileJob) -> CompiledLibrary | None:
    """Return the job's library, or None if there is no intact entry."""
    return _open(_entry(job))


def stage(job: CompileJob) -> Path:
    """Create a staging directory for one compilation, which contains the job file.

    Raises:
        CompileError: If the cache directory cannot be written.
    """
    root = _root()
    try:
        root.mkdir(parents=True, exist_ok=True)
        purge_stale_entries(root)
        staged = Path(tempfile.mkdtemp(prefix=".staged-", dir=root))
        (staged / JOB_NAME).write_text(json.dumps(job.as_json()))
    except OSError as error:
        raise CompileError(
            f"{root}: cannot write the cache directory: {error.strerror}", path=root
        ) from error

    return staged


def publish(staged: Path, job: CompileJob) -> CompiledLibrary:
    """Rename a staging directory to the job's entry, unless another process has published one.

    Raises:
        CompileError: If the published entry is damaged.
    """
    (staged / _CHECKSUM_NAME).write_text(_checksum(staged))
    entry = _entry(job)
    try:
        staged.replace(entry)
    except OSError:
        if (library := _open(entry)) is not None:  # Published by another process.
            return library

        # A damaged entry is moved first: a directory cannot be renamed to one that is not empty.
        damaged = Path(tempfile.mkdtemp(prefix=".damaged-", dir=_root()))
        entry.replace(damaged / entry.name)
        discard(damaged)
        staged.replace(entry)

    library = _open(entry)
    if library is None:
        raise CompileError(f"{entry}: the library was damaged while it was written", path=entry)

    return library


def discard(staged: Path) -> None:
    """Remove a staging directory, if it still exists."""
    shutil.rmtree(staged, ignore_errors=True)


def _root() -> Path:
    return cache_home() / "libraries"


def _entry(job: CompileJob) -> Path:
    return _root() / library_key(job)


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
    """Return a digest of the compiler's sources, so that changing them invalidates all entries."""
    package = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for directory in ("compiler", "models"):
        for path in sorted((package / directory).rglob("*.py")):
            digest.update(os.fsencode(path.relative_to(package)) + b"\0" + path.read_bytes())
    return digest.hexdigest()
