"""The processes and the memory of shards, as the system lists them."""

from __future__ import annotations

__all__ = ("children", "has_ended", "shard_memory")

import os
import time
from contextlib import suppress
from pathlib import Path


def children() -> list[int]:
    """Return the processes of shards that this process has started, ended ones included."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            fields = (path / "stat").read_text().rpartition(")")[2].split()
            command = (path / "cmdline").read_bytes()
            is_zombie = fields[0] == "Z"
            if int(fields[1]) == os.getpid() and (is_zombie or b"shard_worker" in command):
                found.append(int(path.name))
    return found


def has_ended(pid: int, seconds: float = 20) -> bool:
    """Return whether a process ends in time; one that nobody has reaped has ended, too."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True

        if state == "Z":
            return True

        time.sleep(0.02)
    return False


def shard_memory() -> list[str]:
    """Return the mappings and the open descriptors of shared memory, and named shared memory."""
    mapped = [n for n in Path("/proc/self/maps").read_text().splitlines() if "aiomlc-shards" in n]
    opened = []
    for path in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            opened.append(str(path.readlink()))
    named = [str(path) for path in Path("/dev/shm").glob("*aiomlc*")]
    return [*mapped, *(n for n in opened if "aiomlc-shards" in n), *named]
