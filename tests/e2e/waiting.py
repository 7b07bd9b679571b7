"""Wait for a condition that has no event, such as the value of a core's counter."""

from __future__ import annotations

__all__ = ("wait_until",)

from collections.abc import Callable

from anyio.lowlevel import checkpoint


async def wait_until(condition: Callable[[], bool]) -> None:
    """Let other tasks run until the condition is true; the test's time limit applies."""
    while not condition():
        await checkpoint()
