"""Compiled libraries as single files (`model_lib`), for machines that do not compile.

A file is an entry of the cache in a ZIP archive without compression, with what its key is made of:
the job, TVM's version and the compiler's sources. An engine puts it into the cache if all of them
are its own, so a stale file is an error and never executed.
"""

from __future__ import annotations

__all__ = ("import_library", "is_library_file", "write_library")

import json
import secrets
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from anyio import to_thread

from aiomlc.cache import LIBRARIES, Staged, cache_error, staged_entry
from aiomlc.compiler import cache
from aiomlc.compiler.job import CompiledLibrary, CompileJob
from aiomlc.errors import ModelLoadError
from aiomlc.validation.json_values import safe_repr

_MANIFEST: Final = "aiomlc-library.json"
_MAX_MANIFEST_BYTES: Final = 16 << 20
_MAX_DIFFERENCES: Final = 5
_MISSING: Final = "nothing"


def is_library_file(path: Path) -> bool:
    """Return whether a file is a library that `write_library` has written, of any version."""
    try:
        with zipfile.ZipFile(path) as archive:
            return _MANIFEST in archive.namelist()
    except (OSError, zipfile.BadZipFile):
        return False


def write_library(library: CompiledLibrary, job: CompileJob, path: Path) -> None:
    """Write a library to a file, which appears when it is complete.

    Raises:
        ModelLoadError: If the file cannot be written.
    """
    staged = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with zipfile.ZipFile(staged, "x") as archive:
            archive.writestr(_MANIFEST, json.dumps(cache.key_parts(_portable(job)), indent=2))
            for name in LIBRARIES.files:
                archive.write(library.path.with_name(name), name)
        staged.replace(path)
    except OSError as error:
        raise ModelLoadError(f"{path}: cannot write: {error.strerror}", path=path) from None
    finally:
        staged.unlink(missing_ok=True)


async def import_library(path: Path, job: CompileJob) -> CompiledLibrary:
    """Return a library of a file, by way of the cache.

    Args:
        path: The file.
        job: The library that the engine needs.

    Raises:
        ModelNotFoundError: If there is no such file.
        ModelLoadError: If it is not a library, or that of another job or version; the message says
            what differs. Also if the cache cannot be written.
        BadRequestError: If a setting of the cache is invalid.
    """
    job = _portable(job)
    await to_thread.run_sync(_check, path, job)
    cached = await to_thread.run_sync(cache.find, job)
    if cached is not None:
        return cached

    async with staged_entry(LIBRARIES) as staged:
        await to_thread.run_sync(_extract, path, staged)
        return await to_thread.run_sync(cache.publish, staged, job)


def _portable(job: CompileJob) -> CompileJob:
    """Return the job with the device that "auto" stands for."""
    return replace(job, device="cpu")


def _check(path: Path, job: CompileJob) -> None:
    """Require that a file has the library of a job."""
    found = _read_manifest(path)
    # In the same form as the file: tuples are lists.
    expected = json.loads(json.dumps(cache.key_parts(job)))
    differences = [text.removeprefix("job.") for text in _differences(found, expected)]
    if not differences:
        return

    shown = "; ".join(differences[:_MAX_DIFFERENCES])
    others = len(differences) - _MAX_DIFFERENCES
    more = f"; and {others} more" if others > 0 else ""
    raise _error(
        path,
        f"the library is not the one that this engine needs: {shown}{more}. Change the engine's "
        f"settings, or compile it again: aiomlc compile MODEL --force -o {path}",
    )


def _read_manifest(path: Path) -> Mapping[str, Any]:
    try:
        with zipfile.ZipFile(path) as archive:
            if archive.getinfo(_MANIFEST).file_size > _MAX_MANIFEST_BYTES:
                raise _error(path, f"{_MANIFEST} has more than {_MAX_MANIFEST_BYTES:,} bytes")

            manifest = json.loads(archive.read(_MANIFEST))
    except (OSError, zipfile.BadZipFile, KeyError, ValueError) as error:
        raise _error(path, f"not a library of aiomlc: {error}") from None

    if not isinstance(manifest, dict):
        raise _error(path, f"{_MANIFEST} must be an object")

    return manifest


def _differences(found: object, expected: object, name: str = "") -> Iterator[str]:
    """Yield a description of each field that differs."""
    if isinstance(found, Mapping) and isinstance(expected, Mapping):
        for key in sorted({*found, *expected}):
            inner = f"{name}.{key}" if name else str(key)
            yield from _differences(found.get(key, _MISSING), expected.get(key, _MISSING), inner)
    elif found != expected:
        yield f"{name} is {safe_repr(found)} in the library and must be {safe_repr(expected)}"


def _extract(path: Path, staged: Staged) -> None:
    try:
        with zipfile.ZipFile(path) as archive:
            for name in LIBRARIES.files:
                data = archive.read(name)  # Verifies its checksum.
                (staged.path / name).write_bytes(data)
    except (zipfile.BadZipFile, KeyError) as error:
        raise _error(path, f"the library is damaged: {error}") from None
    except OSError as error:
        raise cache_error(staged.path, error) from None


def _error(path: Path, problem: str) -> ModelLoadError:
    return ModelLoadError(f"{path}: {problem}", path=path, field="model_lib")
