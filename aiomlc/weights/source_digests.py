"""Digests of a model directory's weight files, computed once per modification of a file."""

from __future__ import annotations

__all__ = ("SourceDigests", "digest_sources", "is_unchanged")

import hashlib
import logging
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from anyio import CapacityLimiter, create_task_group, to_thread

from aiomlc.cache.files import Stamp, is_settled, read_sealed, stamp_of, write_sealed
from aiomlc.cache.home import cache_homes
from aiomlc.errors import ModelLoadError
from aiomlc.validation.model_files import load_errors
from aiomlc.validation.tracebacks import first_leaf
from aiomlc.weights.formats.source import Source, load_error

CHUNK_BYTES: Final = 64 << 20
_READ_BYTES = 1 << 20

_logger = logging.getLogger("aiomlc")


@dataclass(frozen=True, slots=True)
class SourceDigests:
    """The SHA-256 of each file by name, and the stamps of the files when they were read."""

    digests: Mapping[str, str]
    stamps: Mapping[str, Stamp]


async def digest_sources(source: Source, num_threads: int) -> SourceDigests:
    """Return the digests of a source's files; those of unchanged files are remembered.

    Raises:
        ModelLoadError: If a file cannot be read.
    """
    files = sorted({source.index, *source.files})
    stamps = await to_thread.run_sync(_stamps, files)
    record = await to_thread.run_sync(_read_record, source.directory)
    digests: dict[str, str] = {
        name: record[name]["sha256"]
        for name, stamp in stamps.items()
        if name in record and record[name]["stamp"] == stamp
    }
    missing = [path for path in files if path.name not in digests]
    if missing:
        digests |= await _hash_files(missing, stamps, num_threads)
        await to_thread.run_sync(_write_record, source.directory, stamps, digests)
    return SourceDigests(digests, stamps)


def is_unchanged(source: Source, known: SourceDigests) -> bool:
    """Return whether no file has been modified since it was digested.

    Raises:
        ModelLoadError: If a file cannot be read.
    """
    return _stamps(sorted({source.index, *source.files})) == known.stamps


async def _hash_files(
    files: Sequence[Path], stamps: Mapping[str, Stamp], num_threads: int
) -> dict[str, str]:
    """Hash chunks of the files on several threads; a digest is the hash of the chunks' hashes."""
    limiter = CapacityLimiter(num_threads)
    chunks: dict[Path, dict[int, bytes]] = {path: {} for path in files}

    async def hash_one(path: Path, offset: int) -> None:
        chunks[path][offset] = await to_thread.run_sync(_hash_chunk, path, offset, limiter=limiter)

    try:
        async with create_task_group() as tasks:
            for path in files:
                for offset in range(0, stamps[path.name][1], CHUNK_BYTES):
                    tasks.start_soon(hash_one, path, offset)
    except BaseExceptionGroup as group:
        raise first_leaf(group, ModelLoadError) from None

    return {path.name: _join(hashed) for path, hashed in chunks.items()}


def _join(chunks: Mapping[int, bytes]) -> str:
    return hashlib.sha256(b"".join(chunks[offset] for offset in sorted(chunks))).hexdigest()


def _hash_chunk(path: Path, offset: int) -> bytes:
    digest = hashlib.sha256()
    with load_errors(path), path.open("rb", buffering=0) as file:
        file.seek(offset)
        for _ in range(CHUNK_BYTES // _READ_BYTES):
            digest.update(file.read(_READ_BYTES))

    return digest.digest()


def _stamps(files: Sequence[Path]) -> dict[str, Stamp]:
    stamps = {}
    for path in files:
        try:
            status = path.stat()
        except OSError as error:
            raise load_error(f"cannot read: {error.strerror}", path=path) from None

        if not stat.S_ISREG(status.st_mode):
            raise load_error("not a regular file", path=path)

        stamps[path.name] = stamp_of(status)
    return stamps


def _record_path(home: Path, directory: Path) -> Path:
    name = hashlib.sha256(os.fsencode(directory)).hexdigest()[:32]
    return home / "sources" / f"{name}.json"


def _read_record(directory: Path) -> dict[str, dict[str, Any]]:
    for home in cache_homes():
        try:
            record: dict[str, dict[str, Any]] = read_sealed(_record_path(home, directory))
        except (OSError, ValueError):
            continue  # Missing or damaged: the files are hashed again.

        return record

    return {}


def _write_record(directory: Path, stamps: Mapping[str, Stamp], digests: Mapping[str, str]) -> None:
    """Remember the digests of files that are not being modified."""
    path = _record_path(cache_homes()[-1], directory)
    record = {
        name: {"stamp": stamps[name], "sha256": digest}
        for name, digest in digests.items()
        if is_settled([stamps[name]])
    }
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_sealed(path, record)
    except OSError as error:  # The files are hashed again next time.
        _logger.debug("cannot write %s: %s", path, error)
