"""The limit of the cache's size: what was not used for the longest time is removed first."""

from __future__ import annotations

__all__ = ("StoredEntry", "cache_limit", "enforce_limit", "find_entries")

import logging
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aiomlc.cache.entry import KINDS, MANIFEST_NAME, STATE_NAME, EntryKind
from aiomlc.cache.removal import remove_unused
from aiomlc.errors import BadRequestError

DEFAULT_LIMIT: Final = 100 * 10**9
_VARIABLE = "AIOMLC_CACHE_LIMIT"
_SIZE = re.compile(
    r"(?P<number>\d{1,15}(\.\d{1,9})?)\s*((?P<prefix>[kmgt])(?P<binary>i)?)?b?", re.IGNORECASE
)
_PREFIXES = " kmgt"

_logger = logging.getLogger("aiomlc")


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """An entry on disk, intact or not."""

    path: Path
    kind: EntryKind
    nbytes: int
    last_used: float  #: In seconds since the epoch.


def cache_limit() -> int | None:
    """Return the limit in bytes of `AIOMLC_CACHE_LIMIT`, or None if it is "none".

    Raises:
        BadRequestError: If it is not a size.
    """
    text = os.environ.get(_VARIABLE, "").strip()
    if not text:
        return DEFAULT_LIMIT

    if text.lower() == "none":
        return None

    match = _SIZE.fullmatch(text)
    if match is None:
        raise BadRequestError(
            f"{_VARIABLE} must be a size such as '20GB', or 'none'; got {text!r}", param=_VARIABLE
        )

    base = 1024 if match["binary"] else 1000
    return int(float(match["number"]) * base ** _PREFIXES.index((match["prefix"] or " ").lower()))


def enforce_limit(home: Path, incoming_bytes: int) -> None:
    """Remove unused entries until there is room for a new one; entries in use stay.

    Raises:
        BadRequestError: If `AIOMLC_CACHE_LIMIT` is invalid.
    """
    limit = cache_limit()
    if limit is None:
        return

    entries = sorted(find_entries(home), key=lambda entry: entry.last_used)
    excess = sum(entry.nbytes for entry in entries) + incoming_bytes - limit
    for entry in entries:
        if excess <= 0:
            return

        if remove_unused(entry.path, entry.kind):
            excess -= entry.nbytes
            _logger.info("removed cache entry %s: %s is %d", entry.path, _VARIABLE, limit)


def find_entries(home: Path) -> Iterator[StoredEntry]:
    """Yield the entries below a cache directory."""
    for kind in KINDS:
        with suppress(OSError):
            for item in sorted((home / kind.directory).iterdir()):
                if not item.name.startswith("."):
                    yield StoredEntry(item, kind, _size(item), _last_used(item))


def _size(path: Path) -> int:
    total = 0
    with suppress(OSError):
        total = sum(item.stat(follow_symlinks=False).st_size for item in os.scandir(path))
    return total


def _last_used(path: Path) -> float:
    for file in (path / STATE_NAME, path / MANIFEST_NAME, path):
        with suppress(OSError):
            return file.lstat().st_mtime
    return 0.0
