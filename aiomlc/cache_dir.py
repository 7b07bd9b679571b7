"""Where the library caches what it makes of models."""

from __future__ import annotations

__all__ = ("cache_home", "purge_stale_entries")

import os
import shutil
import time
from pathlib import Path

from platformdirs import user_cache_path

_STALE_SECONDS = 24 * 3600


def cache_home() -> Path:
    """The directory of every cache: `$AIOMLC_HOME`, or `aiomlc` in the platform's own."""
    if chosen := os.environ.get("AIOMLC_HOME"):
        return Path(chosen).expanduser()

    return user_cache_path("aiomlc", appauthor=False)


def purge_stale_entries(directory: Path) -> None:
    """Remove what killed processes left in a cache directory: hidden entries older than a day."""
    oldest = time.time() - _STALE_SECONDS
    for entry in directory.glob(".*"):
        try:
            is_stale = entry.stat().st_mtime < oldest
        except FileNotFoundError:
            continue  # Finished just now.

        if is_stale:
            shutil.rmtree(entry, ignore_errors=True)
