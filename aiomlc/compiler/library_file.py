"""Compiled libraries as single files (`model_lib`), for machines that do not compile.

A file is a ZIP archive without compression: the files of an entry of the cache, their digests, and
what the entry's key is made of: the job, TVM's version and the compiler's sources. An engine
refuses a file if one of these is not its own, or if a digest does not match. The library is used
where it is and never put into the cache, which has only what this machine has compiled.
"""

from __future__ import annotations

__all__ = ("is_foreign_library", "read_library", "write_library")

import hashlib
import json
import secrets
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from aiomlc.cache import LIBRARIES
from aiomlc.compiler import cache
from aiomlc.compiler.job import CompiledLibrary, CompileJob
from aiomlc.errors import ModelLoadError, ModelNotFoundError
from aiomlc.validation.json_values import safe_repr

_MANIFEST: Final = "aiomlc-library.json"
_DIGESTS: Final = "sha256"  # The manifest's field with those of the other files.
_MAX_MANIFEST_BYTES: Final = 16 << 20
_MAX_DIFFERENCES: Final = 5
_MAX_REASON: Final = 200
_MISSING: Final = "nothing"
_ZIP: Final = b"PK"
_FOREIGN_SUFFIXES: Final = frozenset({".so", ".dylib", ".dll", ".tar", ".a", ".wasm"})
# What `zipfile` and `json` raise for damaged files; a RuntimeError if one seems to be encrypted.
_DAMAGES: Final = (
    *(zipfile.BadZipFile, zlib.error, struct.error),
    *(EOFError, LookupError, RuntimeError, ValueError),
)


def is_foreign_library(path: Path) -> bool:
    """Return whether a path is that of a library of MLC LLM, or of no file.

    Raises:
        ModelLoadError: If the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            is_archive = file.read(len(_ZIP)) == _ZIP
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError as error:
        raise _error(path, f"cannot read: {error.strerror}") from None

    return not is_archive and path.suffix.lower() in _FOREIGN_SUFFIXES


def write_library(library: CompiledLibrary, job: CompileJob, path: Path) -> None:
    """Write a library to a file, which appears when it is complete.

    Raises:
        ModelLoadError: If the file cannot be written.
    """
    contents = (library.code, json.dumps(library.metadata).encode())
    files = dict(zip(LIBRARIES.files, contents, strict=True))
    digests = {name: _digest(data) for name, data in files.items()}
    manifest = {**cache.key_parts(job), _DIGESTS: digests}
    staged = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with zipfile.ZipFile(staged, "x") as archive:
            archive.writestr(_MANIFEST, json.dumps(manifest, indent=2))
            for name, data in files.items():
                archive.writestr(name, data)
        staged.replace(path)
    except OSError as error:
        raise ModelLoadError(f"{path}: cannot write: {error.strerror}", path=path) from None
    finally:
        staged.unlink(missing_ok=True)


def read_library(path: Path, job: CompileJob) -> CompiledLibrary:
    """Return the library of a file.

    Raises:
        ModelNotFoundError: If there is no such file.
        ModelLoadError: If it is not a library, or damaged, or that of another job or version; the
            message says what differs.
    """
    manifest = _read_manifest(path)
    digests = manifest.pop(_DIGESTS, None)
    _check(path, manifest, job)
    code, metadata = _read_files(path, digests)
    return CompiledLibrary(path, code, json.loads(metadata), cache.library_key(job))


def _check(path: Path, found: Mapping[str, Any], job: CompileJob) -> None:
    """Require that a file has the library of a job."""
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


def _read_manifest(path: Path) -> dict[str, Any]:
    try:
        with zipfile.ZipFile(path) as archive:
            manifest = json.loads(_read(archive, _MANIFEST, _MAX_MANIFEST_BYTES))
    except OSError as error:
        raise _unreadable(path, error) from None
    except _DAMAGES as error:
        raise _error(path, f"not a library of aiomlc: {_shortened(error)}") from None

    if not isinstance(manifest, dict):
        raise _error(path, f"{_MANIFEST} must be an object")

    return manifest


def _read_files(path: Path, digests: object) -> list[bytes]:
    """Return the files of the library, which match their digests."""
    try:
        with zipfile.ZipFile(path) as archive:
            files = {name: _read(archive, name, path.stat().st_size) for name in LIBRARIES.files}
    except OSError as error:
        raise _unreadable(path, error) from None
    except _DAMAGES as error:
        raise _error(path, f"the library is damaged: {_shortened(error)}") from None

    found = {name: _digest(data) for name, data in files.items()}
    if found != digests:
        raise _error(path, "the library is damaged: its files do not match their digests")

    return list(files.values())


def _read(archive: zipfile.ZipFile, name: str, max_bytes: int) -> bytes:
    item = archive.getinfo(name)
    if item.compress_type != zipfile.ZIP_STORED or item.file_size > max_bytes:
        raise ValueError(f"{name} is compressed or too large")

    return archive.read(item)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _differences(found: object, expected: object, name: str = "") -> Iterator[str]:
    """Yield a description of each field that differs.

    Of a list, the first items that differ stand for all: layers mostly differ in the same fields.
    """
    if found == expected:
        return

    if isinstance(found, Mapping) and isinstance(expected, Mapping):
        for key in sorted({*found, *expected}):
            inner = f"{name}.{key}" if name else str(key)
            yield from _differences(found.get(key, _MISSING), expected.get(key, _MISSING), inner)
    elif isinstance(found, list) and isinstance(expected, list):
        if len(found) != len(expected):
            yield f"{name} has {len(found)} items in the library and must have {len(expected)}"
            return

        pairs = enumerate(zip(found, expected, strict=True))
        index, (one, other) = next((i, pair) for i, pair in pairs if pair[0] != pair[1])
        yield from _differences(one, other, f"{name}[{index}]")
    else:
        yield f"{name} is {safe_repr(found)} in the library and must be {safe_repr(expected)}"


def _shortened(error: Exception) -> str:
    """Return the message of an error, which may contain what a damaged file takes for a name."""
    return f"{type(error).__name__}: {error}"[:_MAX_REASON]


def _unreadable(path: Path, error: OSError) -> ModelLoadError:
    if isinstance(error, FileNotFoundError):
        message = f"the model_lib is not a file: {path}"
        return ModelNotFoundError(message, path=path, field="model_lib")

    return _error(path, f"cannot read: {error.strerror or error}")


def _error(path: Path, problem: str) -> ModelLoadError:
    return ModelLoadError(f"{path}: {problem}", path=path, field="model_lib")
