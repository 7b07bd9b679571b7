"""Number of the kernels' worker threads in this process."""

from __future__ import annotations

__all__ = ("has_native_threads", "native_threads", "stable_native_threads")

import threading
import time
from pathlib import Path


def native_threads() -> int:
    """Return the number of threads that Python did not start: the kernels' workers."""
    tasks = len(list(Path("/proc/self/task").iterdir()))
    return tasks - len(threading.enumerate())


def stable_native_threads() -> int:
    """Return the number of native threads, without those of an earlier test that are ending."""
    counts = []
    for _ in range(20):
        counts.append(native_threads())
        time.sleep(0.001)
    return min(counts)


def has_native_threads(count: int) -> bool:
    """Whether `count` native threads remain; a thread stays listed shortly after its end."""
    deadline = time.monotonic() + 5
    while native_threads() != count and time.monotonic() < deadline:
        time.sleep(0.001)
    return native_threads() == count
