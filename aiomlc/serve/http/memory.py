"""Memory that large requests leave behind."""

from __future__ import annotations

__all__ = ("LARGE_BODY", "return_memory_soon")

import ctypes
from functools import cache
from typing import Any, Final, final

from anyio import CapacityLimiter, sleep, to_thread
from anyio.lowlevel import RunVar

from aiomlc.runtime.concurrency.event_loop import spawn_system_task

#: Bytes of a body whose memory is worth the milliseconds that returning it takes.
LARGE_BODY: Final = 2**20
_SECONDS = 1.0


def return_memory_soon() -> None:
    """Give the memory that will be free in a second back to the system.

    The C library keeps what was freed between blocks that are in use, for ever if nothing needs
    as much again: after some hostile bodies, a server of 100 MB kept 690 MB.
    """
    if _malloc_trim() is not None and _return.get(None) is None:
        _return.set(_Return())


@final
class _Return:
    """The task that returns memory. asyncio needs a reference to it."""

    def __init__(self) -> None:
        self._task = spawn_system_task(self._run, name="aiomlc memory")

    async def _run(self) -> None:
        await sleep(_SECONDS)
        _return.set(None)
        await to_thread.run_sync(_malloc_trim(), 0, limiter=CapacityLimiter(1))


_return: RunVar[_Return | None] = RunVar("_return")  # While a task is due.


@cache
def _malloc_trim() -> Any:  # noqa: ANN401 - a function of ctypes, or None.
    """Return glibc's function, which runs without the GIL; None if there is another C library."""
    return getattr(ctypes.CDLL(None), "malloc_trim", None)
