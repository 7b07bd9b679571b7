"""How much memory this process may still take."""

from __future__ import annotations

__all__ = ("available_memory",)

import os
from pathlib import Path

_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")
_SHARE = 0.8  # The host program needs some, too.


def available_memory() -> int:
    """Bytes: what the system has, bounded by the control group, less a share for the host."""
    free = min(_system_memory(), _cgroup_memory())
    return int(free * _SHARE)


def _system_memory() -> int:
    try:
        for line in _MEMINFO.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass  # Not Linux: half of all memory is a fair guess.

    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def _cgroup_memory() -> int:
    try:
        limit = (_CGROUP / "memory.max").read_text().strip()
        used = int((_CGROUP / "memory.current").read_text())
    except OSError:
        limit, used = "max", 0

    return 1 << 62 if limit == "max" else max(0, int(limit) - used)
