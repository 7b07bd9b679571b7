"""A task that outlives the scope of its caller: the one thing anyio has no word for."""

from __future__ import annotations

__all__ = ("spawn_system_task",)

from collections.abc import Callable, Coroutine
from typing import Any

from anyio.lowlevel import current_token


def spawn_system_task(function: Callable[[], Coroutine[Any, Any, None]], *, name: str) -> object:
    """Run `function` on the current event loop until it ends or the loop does.

    Both backends cancel such a task, and wait for it, when the loop's main task is over. The
    function must not raise: trio would take that for a bug of its own.

    Returns:
        An object to keep until the task ends; asyncio holds its tasks weakly.
    """
    loop = current_token().native_token
    # The token is asyncio's loop itself, so `asyncio` need not be imported.
    create_task = getattr(loop, "create_task", None)
    if create_task is not None:
        return create_task(function(), name=name)

    import trio  # Installed, since its loop is running.

    return trio.lowlevel.spawn_system_task(function, name=name)
