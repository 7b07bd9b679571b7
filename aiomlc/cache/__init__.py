"""The cache of compiled libraries, packed weights and kernels of devices.

An entry is a directory of data files and a manifest with their checksums. It is published by a
single rename, so processes that make the same entry at the same time do not interfere. Its files
are verified once per boot and after each modification; a damaged entry is made again.
"""

from __future__ import annotations

__all__ = (
    "LIBRARIES",
    "PROGRAMS",
    "WEIGHTS",
    "Entry",
    "EntryKind",
    "Lease",
    "ListedEntry",
    "Staged",
    "StoredEntry",
    "cache_error",
    "cache_home",
    "cache_limit",
    "clear_cache",
    "find",
    "list_entries",
    "publish",
    "staged_entry",
    "verify_entry",
)

from aiomlc.cache.entry import LIBRARIES, PROGRAMS, WEIGHTS, Entry, EntryKind
from aiomlc.cache.files import Lease
from aiomlc.cache.home import cache_error, cache_home
from aiomlc.cache.limit import StoredEntry, cache_limit
from aiomlc.cache.maintenance import ListedEntry, clear_cache, list_entries, verify_entry
from aiomlc.cache.store import Staged, find, publish, staged_entry
