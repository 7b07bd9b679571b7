"""One entry of the cache: its manifest, its verification and its last use."""

from __future__ import annotations

__all__ = (
    "KINDS",
    "LIBRARIES",
    "MANIFEST_NAME",
    "PROGRAMS",
    "STATE_NAME",
    "WEIGHTS",
    "DamagedEntryError",
    "Entry",
    "EntryKind",
    "open_entry",
    "seal_entry",
)

import functools
import logging
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from aiomlc.cache.checksum import Checkpoint, file_checksums
from aiomlc.cache.files import (
    Lease,
    Stamp,
    is_at,
    is_settled,
    is_transient,
    read_sealed,
    regular_file,
    stamp_of,
    write_sealed,
)

FORMAT_VERSION: Final = 1  # Of the manifest and of the checksum.
MANIFEST_NAME: Final = "manifest.json"
STATE_NAME: Final = "state.json"  # Its modification time is that of the entry's last use.

_logger = logging.getLogger("aiomlc")


@dataclass(frozen=True, slots=True)
class EntryKind:
    """A directory of the cache, and the data files of its entries."""

    directory: str
    files: tuple[str, ...]  #: The first one is locked while the entry is in use.


WEIGHTS: Final = EntryKind("weights", ("params.bin",))
LIBRARIES: Final = EntryKind("libraries", ("model.vm", "metadata.json"))
PROGRAMS: Final = EntryKind("programs", ("program.bin",))  # Of a library's kernels on a device.
KINDS: Final = (WEIGHTS, LIBRARIES, PROGRAMS)


@dataclass(frozen=True, slots=True)
class Entry:
    """An intact entry, which is not removed while `lease` exists."""

    path: Path
    info: Mapping[str, Any]  #: As given to `publish`; always has "model" and "quantization".
    lease: Lease


class DamagedEntryError(Exception):
    """The entry is incomplete, or does not match its checksums; the message says why."""


def open_entry(
    path: Path, kind: EntryKind, checkpoint: Checkpoint, *, thorough: bool = False
) -> Entry:
    """Open an entry, verify its files and record its use.

    Files are verified once per boot and after each modification.

    Args:
        checkpoint: Called once per GiB that is verified.
        thorough: Whether to verify all files, and not to record the use.

    Raises:
        FileNotFoundError: If there is no such entry, or it is being removed.
        DamagedEntryError: If the entry is damaged.
        OSError: If the system lacks descriptors or memory: see `is_transient`.
    """
    if not stat.S_ISDIR(path.lstat().st_mode):
        raise DamagedEntryError("it is not a directory")

    lease = _lease(path / kind.files[0])
    with _damage(MANIFEST_NAME):
        manifest = read_sealed(path / MANIFEST_NAME)

    if (manifest["version"], manifest["key"]) != (FORMAT_VERSION, path.name):
        raise DamagedEntryError(f"{MANIFEST_NAME} belongs to another entry")

    verified = {} if thorough else _verified_stamps(path)
    stamps: dict[str, Stamp] = {}
    for name in kind.files:
        expected, stamp = manifest["files"][name], verified.get(name)
        stamps[name] = _verify(path / name, expected, stamp, checkpoint)
    if not thorough:
        _record_use(path, stamps, is_verified=stamps == verified)
    return Entry(path, manifest["info"], lease)


def seal_entry(
    path: Path, kind: EntryKind, key: str, info: Mapping[str, Any], checkpoint: Checkpoint
) -> None:
    """Write the manifest of a staged entry, and record that its files are verified.

    Raises:
        OSError: If a file is missing or cannot be read or written.
    """
    files: dict[str, Any] = {}
    stamps: dict[str, Stamp] = {}
    for name in kind.files:
        (path / name).chmod(0o444)  # Truncating a mapped file would end the processes that use it.
        with regular_file(path / name) as descriptor:
            status = os.fstat(descriptor)
            checksums = file_checksums(descriptor, status.st_size, checkpoint)
        files[name] = {"nbytes": status.st_size, "checksums": checksums}
        stamps[name] = stamp_of(status)
    manifest = {"version": FORMAT_VERSION, "key": key, "files": files, "info": dict(info)}
    write_sealed(path / MANIFEST_NAME, manifest)
    write_sealed(path / STATE_NAME, _state(stamps))


def _lease(path: Path) -> Lease:
    try:
        lease = Lease(path)
    except BlockingIOError as error:
        raise FileNotFoundError(f"{path} is being removed") from error
    except OSError as error:
        if not path.parent.exists():
            raise FileNotFoundError(f"{path} has been removed") from error

        with _damage(path.name):
            raise

    if is_at(lease.descriptor, path):
        return lease

    raise FileNotFoundError(f"{path} has been removed")


def _verify(
    path: Path, expected: Mapping[str, Any], verified: Stamp | None, checkpoint: Checkpoint
) -> Stamp:
    """Return the stamp of an intact file; `verified` is that of the last verification."""
    with _damage(path.name), regular_file(path) as descriptor:
        status = os.fstat(descriptor)
        if status.st_size != expected["nbytes"]:
            raise DamagedEntryError(
                f"{path.name} has {status.st_size} bytes, expected {expected['nbytes']}"
            )

        stamp = stamp_of(status)
        if stamp == verified:
            return stamp

        sums = file_checksums(descriptor, status.st_size, checkpoint)
        if sums == expected["checksums"] and stamp_of(os.fstat(descriptor)) == stamp:
            return stamp
    raise DamagedEntryError(f"{path.name} does not match its checksum")


def _record_use(path: Path, stamps: dict[str, Stamp], *, is_verified: bool) -> None:
    """Record the last use, and the verification of files that are not being modified."""
    state = path / STATE_NAME
    try:
        if is_verified:
            os.utime(state, follow_symlinks=False)
        elif is_settled(list(stamps.values())):
            write_sealed(state, _state(stamps))
    except OSError as error:  # The cache is read-only or the disk full: verified again next time.
        _logger.debug("cannot write %s: %s", state, error)


def _verified_stamps(path: Path) -> dict[str, Stamp]:
    """Return the stamps of the files that were verified since the system was booted."""
    try:
        state = read_sealed(path / STATE_NAME)
    except (OSError, ValueError):
        return {}

    stamps: dict[str, Stamp] = state["stamps"]
    return stamps if state["boot_id"] == _boot_id() is not None else {}


def _state(stamps: dict[str, Stamp]) -> dict[str, object]:
    return {"boot_id": _boot_id(), "stamps": stamps}


@functools.cache
def _boot_id() -> str | None:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None


@contextmanager
def _damage(name: str) -> Iterator[None]:
    """Map the errors of reading a file to damage of its entry, unless they are transient."""
    try:
        yield
    except ValueError as error:
        raise DamagedEntryError(f"{name} {error}") from error
    except OSError as error:
        if is_transient(error):
            raise

        reason = f"cannot be read: {error.strerror or error}"
        raise DamagedEntryError(f"{name} {reason}") from error
