"""The memory that this process may still allocate."""

from __future__ import annotations

__all__ = ("MemoryBudget", "memory_budget")

import os
from dataclasses import dataclass
from pathlib import Path

from aiomlc.runtime.loading.control_groups import free_memory
from aiomlc.runtime.native.device import DeviceMemory

_ROOT = Path("/")
_DEFAULT_UTILIZATION = 0.85  # As in MLC LLM; the host program needs memory as well.


@dataclass(frozen=True, slots=True)
class MemoryBudget:
    """The memory that a model may use, with its source."""

    free_bytes: int
    source: str  #: Description of what limits `free_bytes`.
    utilization: float  #: The fraction of `free_bytes` to plan with.

    @property
    def nbytes(self) -> int:
        """Bytes that a plan may use."""
        return int(self.free_bytes * self.utilization)

    def __str__(self) -> str:
        free = f"{self.free_bytes / 2**20:,.1f} MiB"
        return f"{self.utilization:.0%} of {free} of {self.source}"


def memory_budget(utilization: float | None, device: DeviceMemory | None = None) -> MemoryBudget:
    """Return the memory of a device, or the smaller of the system's and the control group's.

    Args:
        utilization: The fraction to plan with; None for 0.85.
        device: The memory of a device that has its own.
    """
    fraction = _DEFAULT_UTILIZATION if utilization is None else utilization
    if device is not None:
        return MemoryBudget(device.free_bytes, device.source, fraction)

    system, control_group = _system_memory(), free_memory(_ROOT)
    if control_group is not None and control_group < system:
        return MemoryBudget(control_group, "the control group's limit", fraction)

    return MemoryBudget(system, "the system's free memory", fraction)


def _system_memory() -> int:
    try:
        for line in (_ROOT / "proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass  # Not Linux: assume that half of the memory is free.

    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
