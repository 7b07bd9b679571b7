"""The cache of compiled libraries, keyed by everything that determines their content."""

from __future__ import annotations

__all__ = (
    "JOB_NAME",
    "LIBRARY_NAME",
    "METADATA_NAME",
    "find",
    "key_parts",
    "library_key",
    "publish",
    "write_job",
)

import functools
import hashlib
import json
import os
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from anyio import from_thread

from aiomlc import cache
from aiomlc.compiler.backends.registry import backend_of
from aiomlc.compiler.job import CompiledLibrary, CompileJob

LIBRARY_NAME, METADATA_NAME = cache.LIBRARIES.files
JOB_NAME: Final = "job.json"


def library_key(job: CompileJob, toolchain: str = "") -> str:
    """Return a digest of the job, of TVM's and aiomlc's code, and of the compiler beside TVM."""
    parts = key_parts(job) | ({"toolchain": toolchain} if toolchain else {})
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def key_parts(job: CompileJob) -> dict[str, Any]:
    """Return what determines a library, as JSON values."""
    return {
        "job": job.as_json(),
        "apache-tvm": metadata.version("apache-tvm"),
        "apache-tvm-ffi": metadata.version("apache-tvm-ffi"),
        "aiomlc": _sources_digest(),
    }


def find(job: CompileJob) -> CompiledLibrary | None:
    """Return the job's library, or None if there is no intact entry. Runs in a worker thread.

    Raises:
        ModelLoadError: If there is no cache directory.
        CompileError: If the device's compiler is missing.
        BadRequestError: If a setting of the cache is invalid.
    """
    entry = cache.find(cache.LIBRARIES, _entry_key(job), from_thread.check_cancelled)
    return None if entry is None else _library(entry)


def write_job(staged: cache.Staged, job: CompileJob) -> None:
    """Write the job file, which the compiler reads.

    Raises:
        ModelLoadError: If the cache cannot be written.
    """
    path = staged.path / JOB_NAME
    try:
        path.write_text(json.dumps(job.as_json()))
    except OSError as error:
        raise cache.cache_error(path, error) from None


def publish(staged: cache.Staged, job: CompileJob) -> CompiledLibrary:
    """Publish a compiled library. Runs in a worker thread.

    Raises:
        ModelLoadError: If the cache cannot be written.
    """
    config = job.config
    shape = f"{config.model_type}, {config.num_hidden_layers} layers of {config.hidden_size:,}"
    info = {"model": shape, "quantization": job.quantization}
    return _library(cache.publish(staged, _entry_key(job), info, from_thread.check_cancelled))


def _entry_key(job: CompileJob) -> str:
    """Return the name of the job's entry: another compiler makes another library."""
    return library_key(job, backend_of(job.device).toolchain())


def _library(entry: cache.Entry) -> CompiledLibrary:
    path = entry.path / LIBRARY_NAME
    try:
        values = json.loads((entry.path / METADATA_NAME).read_bytes())
        code = path.read_bytes()
    except OSError as error:
        raise cache.cache_error(path, error) from None

    return CompiledLibrary(path, code, values, entry.path.name)


@functools.cache
def _sources_digest() -> str:
    """Return a digest of the compiler's sources, so that changing them invalidates all entries."""
    package = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for directory in ("compiler", "models"):
        for path in sorted((package / directory).rglob("*.py")):
            digest.update(os.fsencode(path.relative_to(package)) + b"\0" + path.read_bytes())
    return digest.hexdigest()
