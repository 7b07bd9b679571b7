"""The processors of the shards of a model: one memory node for each, if the machine has several."""

from __future__ import annotations

__all__ = ("memory_nodes", "on_processors", "place_shards")

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

_NODES = Path("/sys/devices/system/node")


def memory_nodes(root: Path = _NODES) -> list[tuple[int, ...]]:
    """Return the processors of each memory node (NUMA node) that this process may use."""
    allowed = os.sched_getaffinity(0)
    found = sorted(root.glob("node[0-9]*"), key=lambda path: int(path.name.removeprefix("node")))
    nodes = (_processors(path / "cpulist") & allowed for path in found)
    return [tuple(sorted(node)) for node in nodes if node]


def place_shards(count: int, nodes: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Return the processors of each shard; none with a single node, on which the system decides."""
    if len(nodes) < 2:
        return [()] * count

    placed = []
    for shard in range(count):
        first = shard * len(nodes) // count
        last = max(first + 1, (shard + 1) * len(nodes) // count)
        placed.append(tuple(cpu for node in nodes[first:last] for cpu in node))
    return placed


@contextmanager
def on_processors(processors: Sequence[int]) -> Iterator[None]:
    """Restrict this thread, and the threads that it starts, to some processors; none: to no others.

    The memory that they use first is that of the processors' node.
    """
    if not processors:
        yield
        return

    previous = os.sched_getaffinity(0)
    os.sched_setaffinity(0, processors)
    try:
        yield
    finally:
        os.sched_setaffinity(0, previous)


def _processors(path: Path) -> set[int]:
    """Return the numbers in a list such as `0-3,8`."""
    try:
        text = path.read_text().strip()
    except OSError:
        return set()

    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found
