"""How much memory this process may still take."""

from __future__ import annotations

__all__ = ("MemoryBudget", "memory_budget")

import os
from dataclasses import dataclass
from pathlib import Path

_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")
_UTILIZATION = 0.85  # Upstream's; the host program needs some, too.


@dataclass(frozen=True, slots=True)
class MemoryBudget:
    """What a model may take, and how that was found."""

    free_bytes: int
    source: str  #: Whose figure `free_bytes` is, in words.
    utilization: float  #: The share of it that is planned with.

    @property
    def nbytes(self) -> int:
        """Bytes to plan with."""
        return int(self.free_bytes * self.utilization)

    def __str__(self) -> str:
        free = f"{self.free_bytes / 2**20:,.1f} MiB"
        return f"{self.utilization:.0%} of {free} of {self.source}"


def memory_budget(utilization: float | None) -> MemoryBudget:
    """What the system has free, bounded by the control group; None is a share of 0.85."""
    system, control_group = _system_memory(), _cgroup_memory()
    share = _UTILIZATION if utilization is None else utilization
    if control_group is not None and control_group < system:
        return MemoryBudget(control_group, "the control group's limit", share)

    return MemoryBudget(system, "the system's free memory", share)


def _system_memory() -> int:
    try:
        for line in _MEMINFO.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass  # Not Linux: half of all memory is a fair guess.

    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def _cgroup_memory() -> int | None:
    """What the control group leaves; None where it sets no limit."""
    try:
        limit = (_CGROUP / "memory.max").read_text().strip()
        used = int((_CGROUP / "memory.current").read_text())
    except OSError:
        return None

    return None if limit == "max" else max(0, int(limit) - used)
