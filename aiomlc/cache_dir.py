"""The directory of the caches for compiled libraries and packed weights."""

from __future__ import annotations

__all__ = ("cache_home", "purge_stale_entries")

import os
import shutil
import time
from pathlib import Path

from platformdirs import user_cache_path

_STALE_SECONDS = 24 * 3600


def cache_home() -> Path:
    """Return `$AIOMLC_HOME` or, if it is not set, `aiomlc` in the user's cache directory."""
    if home := os.environ.get("AIOMLC_HOME"):
        return Path(home).expanduser()

    return user_cache_path("aiomlc", appauthor=False)


def purge_stale_entries(directory: Path) -> None:
    """Remove hidden entries older than a day, the leftovers of killed processes, from a cache."""
    oldest = time.time() - _STALE_SECONDS
    for entry in directory.glob(".*"):
        try:
            is_stale = entry.stat().st_mtime < oldest
        except FileNotFoundError:
            continue  # Its process has just finished.

        if is_stale:
            shutil.rmtree(entry, ignore_errors=True)
