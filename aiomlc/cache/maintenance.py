"""Lists, verifies and removes cache entries, for `aiomlc cache`."""

from __future__ import annotations

__all__ = ("ListedEntry", "Removal", "clear_cache", "list_entries", "verify_entry")

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiomlc.cache.entry import KINDS, MANIFEST_NAME, DamagedEntryError, open_entry
from aiomlc.cache.files import is_transient, read_sealed
from aiomlc.cache.home import cache_error, cache_homes
from aiomlc.cache.limit import StoredEntry, find_entries
from aiomlc.cache.removal import remove_leftovers, remove_tree, remove_unused

_RECORDS = ("sources", "tokenizers", "downloads")  # Small files that save work and are made again.


@dataclass(frozen=True, slots=True)
class ListedEntry:
    """An entry and its description."""

    stored: StoredEntry
    info: Mapping[str, Any]  #: Empty if the manifest is damaged.


@dataclass(slots=True)
class Removal:
    """The result of `clear_cache`."""

    removed: list[StoredEntry] = field(default_factory=list)
    kept: list[StoredEntry] = field(default_factory=list)  #: In use, or cannot be removed.


def list_entries() -> list[ListedEntry]:
    """Return all entries, the last used one first.

    Raises:
        BadRequestError: If `AIOMLC_HOME` is invalid.
        ModelLoadError: If there is no cache directory.
    """
    entries = [entry for home in cache_homes() for entry in find_entries(home)]
    entries.sort(key=lambda entry: entry.last_used, reverse=True)
    return [ListedEntry(entry, _info(entry.path)) for entry in entries]


def verify_entry(entry: StoredEntry) -> str | None:
    """Return how an entry is damaged, or None. The native library must have been loaded.

    Raises:
        ModelLoadError: If there are too few resources to read it.
    """
    try:
        open_entry(entry.path, entry.kind, _no_checkpoint, thorough=True)
    except FileNotFoundError:
        return None  # Removed in the meantime.
    except (DamagedEntryError, OSError) as error:
        if isinstance(error, OSError) and is_transient(error):
            raise cache_error(entry.path, error) from None

        return str(error)

    return None


def clear_cache(older_than: float = 0.0) -> Removal:
    """Remove the entries that were not used for `older_than` seconds; those in use stay.

    Raises:
        BadRequestError: If `AIOMLC_HOME` is invalid.
        ModelLoadError: If there is no cache directory.
    """
    removal = Removal()
    for home in cache_homes():
        for entry in list(find_entries(home)):
            if older_than == 0 or time.time() - entry.last_used > older_than:
                is_removed = remove_unused(entry.path, entry.kind)
                (removal.removed if is_removed else removal.kept).append(entry)
        for kind in KINDS:
            remove_leftovers(home / kind.directory)
        if older_than == 0:
            for name in _RECORDS:
                remove_tree(home / name)
    return removal


def _info(path: Path) -> Mapping[str, Any]:
    try:
        info: Mapping[str, Any] = read_sealed(path / MANIFEST_NAME)["info"]
    except (OSError, ValueError):
        return {}

    return info


def _no_checkpoint() -> None:
    pass
