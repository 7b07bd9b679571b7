"""Lookup, staging and publication of entries."""

from __future__ import annotations

__all__ = ("Staged", "find", "publish", "staged_entry")

import logging
import os
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anyio import CancelScope, to_thread

from aiomlc.cache.checksum import Checkpoint
from aiomlc.cache.entry import DamagedEntryError, Entry, EntryKind, open_entry, seal_entry
from aiomlc.cache.files import Lease, create_locked, is_transient
from aiomlc.cache.home import cache_error, cache_home, cache_homes
from aiomlc.cache.limit import cache_limit, enforce_limit
from aiomlc.cache.removal import (
    LOCK_NAME,
    publication_lock,
    remove,
    remove_leftovers,
    remove_tree,
)

_logger = logging.getLogger("aiomlc")


@dataclass(frozen=True, slots=True)
class Staged:
    """A private directory for one new entry; its data files are written there."""

    kind: EntryKind
    path: Path
    lock: int  #: A descriptor that is locked as long as the process lives.


def find(kind: EntryKind, key: str, checkpoint: Checkpoint) -> Entry | None:
    """Return an intact entry, or None; a damaged one is logged, and replaced by `publish`.

    Raises:
        BadRequestError: If `AIOMLC_HOME` or `AIOMLC_CACHE_LIMIT` is invalid.
        ModelLoadError: If there is no cache directory, or too few resources to read it.
    """
    cache_limit()  # Settings are checked at each start, not only at one that needs them.
    for home in cache_homes():
        directory = home / kind.directory
        remove_leftovers(directory)
        try:
            return open_entry(directory / key, kind, checkpoint)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except DamagedEntryError as error:
            _logger.warning(
                "cache entry %s is damaged and will be made again: %s", directory / key, error
            )
        except OSError as error:
            if is_transient(error):
                raise cache_error(directory / key, error) from None

            _logger.warning("cache entry %s cannot be read: %s", directory / key, error)
    return None


@asynccontextmanager
async def staged_entry(kind: EntryKind, nbytes: int = 0) -> AsyncIterator[Staged]:
    """Create a directory for one new entry; it is removed again unless it was published.

    Args:
        nbytes: The size of the entry, for which entries that were not used for long are removed.

    Raises:
        BadRequestError: If `AIOMLC_HOME` or `AIOMLC_CACHE_LIMIT` is invalid.
        ModelLoadError: If the cache cannot be written.
    """
    home = await to_thread.run_sync(_prepare, kind, nbytes)
    staged = _stage(
        kind, home / kind.directory
    )  # Synchronous: nothing can be cancelled before try.
    try:
        yield staged
    finally:
        with CancelScope(shield=True):
            await to_thread.run_sync(_discard, staged)


def publish(staged: Staged, key: str, info: Mapping[str, Any], checkpoint: Checkpoint) -> Entry:
    """Rename a staged directory to its entry, unless another process has published one.

    Args:
        staged: The directory with the data files of the entry.
        info: A description as JSON: "model", "quantization", and what the kind of entry needs.
        checkpoint: Called once per GiB that is read, and while other processes publish.

    Raises:
        ModelLoadError: If the cache cannot be written.
    """
    entry = staged.path.with_name(key)
    try:
        _remove_other_files(staged)
        seal_entry(staged.path, staged.kind, key, info, checkpoint)
        _lease = Lease(staged.path / staged.kind.files[0])  # Until `published` has its own.
        with publication_lock(entry, checkpoint):
            (staged.path / LOCK_NAME).unlink(missing_ok=True)
            while (published := _intact(entry, staged.kind, checkpoint)) is None:
                remove(entry)
                _rename(staged.path, entry)
    except OSError as error:
        raise cache_error(entry, error) from None

    return published


def _prepare(kind: EntryKind, nbytes: int) -> Path:
    home = cache_home()
    directory = home / kind.directory
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cache_error(directory, error) from None

    remove_leftovers(directory)
    enforce_limit(home, nbytes)
    return home


def _stage(kind: EntryKind, directory: Path) -> Staged:
    path = directory / f".staged-{secrets.token_hex(8)}"
    try:
        path.mkdir()
        lock = create_locked(path / LOCK_NAME)
    except OSError as error:
        remove_tree(path)
        raise cache_error(path, error) from None

    return Staged(kind, path, lock)


def _discard(staged: Staged) -> None:
    remove_tree(staged.path)
    os.close(staged.lock)


def _intact(entry: Path, kind: EntryKind, checkpoint: Checkpoint) -> Entry | None:
    try:
        return open_entry(entry, kind, checkpoint)
    except (DamagedEntryError, FileNotFoundError):
        return None


def _remove_other_files(staged: Staged) -> None:
    """Remove what is not part of the entry, such as the compiler's output."""
    for item in staged.path.iterdir():
        if item.name not in (*staged.kind.files, LOCK_NAME):
            remove_tree(item)


def _rename(staged: Path, entry: Path) -> None:
    try:
        staged.rename(entry)
    except OSError:
        if not os.path.lexists(entry):
            raise  # Else another process has just published the entry.
