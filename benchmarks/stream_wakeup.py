"""CPU time of one delta between delivery and a reader that waits for it.

    python -m benchmarks.stream_wakeup

The benchmark compares `Mailbox` with an anyio memory object stream that carries the same delta. The
reader waits each time, as it does for the tokens of a single stream. The time includes two
checkpoints of the sender, which let the reader start to wait.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any

import anyio
import anyio.lowlevel

from aiomlc.runtime.engine.core_protocol import Record
from aiomlc.runtime.engine.stream import Mailbox

_DELTAS = 5_000
_ROUNDS = 7
_RECORD = Record(1, "word ", (7,), None, None, 3, 4)


async def mailbox() -> float:
    """Return the CPU seconds per delta through a mailbox."""
    box = Mailbox()

    async def read() -> None:
        for _ in range(_DELTAS):
            await box.take()

    return await _measure(read, lambda: box.put(_RECORD))


async def memory_object_stream() -> float:
    """Return the CPU seconds per delta through a memory object stream with a buffer of one."""
    sender, receiver = anyio.create_memory_object_stream[Record](1)

    async def read() -> None:
        for _ in range(_DELTAS):
            await receiver.receive()

    with sender, receiver:
        return await _measure(read, lambda: sender.send_nowait(_RECORD))


async def _measure(
    read: Callable[[], Coroutine[Any, Any, None]], put: Callable[[], object]
) -> float:
    start = time.thread_time()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        for _ in range(_DELTAS):
            await anyio.lowlevel.checkpoint()
            await anyio.lowlevel.checkpoint()
            put()
    return (time.thread_time() - start) / _DELTAS


async def _interleaved() -> dict[str, float]:
    samples: dict[str, list[float]] = {"mailbox": [], "memory object stream": []}
    for _ in range(_ROUNDS):
        samples["mailbox"].append(await mailbox())
        samples["memory object stream"].append(await memory_object_stream())
    return {name: statistics.median(values) for name, values in samples.items()}


def main() -> None:
    """Print the medians for both backends."""
    for backend in ("asyncio", "trio"):
        medians = anyio.run(_interleaved, backend=backend)
        for name, seconds in medians.items():
            sys.stdout.write(f"{backend:8s} {name:22s} {seconds * 1e6:6.1f} us per delta\n")


if __name__ == "__main__":
    main()
