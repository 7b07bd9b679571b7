"""The control groups of Linux, versions 1 and 2, that limit this process."""

from __future__ import annotations

__all__ = ("free_memory", "quota_cpus")

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_ROOT = Path("/")
_CGROUP = "sys/fs/cgroup"


def quota_cpus(root: Path = _ROOT) -> float | None:
    """Return the processors that the groups allow, those above included; None: all."""
    quotas = [quota for group in _groups("cpu", root) for quota in _quota(group)]
    return min(quotas, default=None)


def free_memory(root: Path = _ROOT) -> int | None:
    """Return the bytes that the groups still allow, those above included; None: no limit.

    The page cache does not count as used, because it is given up when memory is needed.
    """
    free = [nbytes for group in _groups("memory", root) for nbytes in _free(group)]
    return min(free, default=None)


def _groups(controller: str, root: Path) -> Iterator[Path]:
    """Yield the directories of this process's groups with a controller, and those above."""
    with suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers or controller in controllers.split(","):
                base = root / _CGROUP / (controller if controllers else "")
                group = Path(path.lstrip("/"))
                yield from (base / part for part in (group, *group.parents))


def _quota(group: Path) -> Iterator[float]:
    with suppress(OSError, ValueError):
        quota, period = (group / "cpu.max").read_text().split()
        yield int(quota) / int(period)

    with suppress(OSError, ValueError):
        limit = int((group / "cpu.cfs_quota_us").read_text())
        if limit > 0:
            yield limit / int((group / "cpu.cfs_period_us").read_text())


def _free(group: Path) -> Iterator[int]:
    names = (
        ("memory.max", "memory.current", ""),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
    )
    for limit_name, used_name, prefix in names:
        with suppress(OSError, ValueError):
            limit = int((group / limit_name).read_text())
            used = int((group / used_name).read_text())
            yield max(0, limit - max(0, used - _page_cache(group, prefix)))


def _page_cache(group: Path, prefix: str) -> int:
    """Return the bytes of files in memory, as the kernel's own MemAvailable counts them."""
    numbers = {f"{prefix}active_file", f"{prefix}inactive_file"}
    total = 0
    with suppress(OSError, ValueError):
        for line in (group / "memory.stat").read_text().splitlines():
            name, number = line.split()
            total += int(number) if name in numbers else 0

    return total
