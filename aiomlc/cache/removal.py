"""Removal of entries and of what killed processes have left."""

from __future__ import annotations

__all__ = (
    "LOCK_NAME",
    "publication_lock",
    "remove",
    "remove_leftovers",
    "remove_tree",
    "remove_unused",
)

import os
import secrets
import shutil
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Final

from aiomlc.cache.entry import EntryKind
from aiomlc.cache.files import exclusive_lock, is_at, lock_alone, regular_file

LOCK_NAME: Final = "lock"  # In a staged directory: locked as long as its process lives.
_PUBLICATION_LOCK = "publication.lock"
_UNLOCKED_SECONDS = 3600  # The age at which a leftover without a lock is removed.


def publication_lock(
    entry: Path, checkpoint: Callable[[], object] = lambda: None
) -> AbstractContextManager[None]:
    """Return the lock under which an entry is replaced or removed; see `exclusive_lock`."""
    return exclusive_lock(entry.parent.parent / _PUBLICATION_LOCK, checkpoint)


def remove(path: Path) -> bool:
    """Remove an entry atomically: other processes see all of it or nothing.

    Returns:
        Whether it existed.

    Raises:
        OSError: If it cannot be removed.
    """
    aside = path.with_name(f".removed-{secrets.token_hex(8)}")
    try:
        path.rename(aside)
    except FileNotFoundError:
        return False

    remove_tree(aside)
    return True


def remove_unused(path: Path, kind: EntryKind) -> bool:
    """Remove an entry; return False if a process uses it, or if it cannot be removed."""
    data = path / kind.files[0]
    # Without the lock, another process could replace the entry between the check and the removal.
    with suppress(OSError), publication_lock(path):
        try:
            with regular_file(data) as descriptor:
                return lock_alone(descriptor) and is_at(descriptor, data) and remove(path)
        except (FileNotFoundError, NotADirectoryError):
            return remove(path)  # A damaged entry, which no process has opened.
    return False


def remove_leftovers(directory: Path) -> None:
    """Remove what killed processes have left in a directory of the cache."""
    try:
        leftovers = [item for item in os.scandir(directory) if item.name.startswith(".")]
    except OSError:
        return

    for leftover in leftovers:
        with suppress(OSError):
            if _is_abandoned(leftover):
                remove_tree(Path(leftover))


def remove_tree(path: Path) -> None:
    """Remove a file, a link or a directory; errors are ignored."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def _is_abandoned(leftover: os.DirEntry[str]) -> bool:
    try:
        with regular_file(Path(leftover, LOCK_NAME)) as descriptor:
            return lock_alone(descriptor)
    except (FileNotFoundError, NotADirectoryError):
        age = time.time() - leftover.stat(follow_symlinks=False).st_mtime
        return age > _UNLOCKED_SECONDS
