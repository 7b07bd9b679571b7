"""The running event loop of either backend: its identity, tasks that outlive a scope, and waiters.

asyncio's loop is reached through anyio's token, so `asyncio` is never imported.
"""

from __future__ import annotations

__all__ = (
    "Waiter",
    "check_loop",
    "running_loop",
    "spawn_system_task",
    "waiter_maker",
)

from collections.abc import Callable, Coroutine, Generator
from functools import partial
from types import ModuleType
from typing import Any, Protocol, final

from anyio.lowlevel import current_token

from aiomlc.errors import EngineClosedError


def running_loop() -> object:
    """The identity of the event loop in this thread, of either backend."""
    loop: object = current_token().native_token
    return loop


def check_loop(owner: object) -> None:
    """Refuse to go on in any event loop but the owner.

    Raises:
        EngineClosedError: it is another one.
    """
    if running_loop() is not owner:
        raise EngineClosedError("the engine serves another event loop: open one per loop")


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


class Waiter(Protocol):
    """The part of an asyncio future that a reader and its waker need. Awaited once, at once.

    The two are in one thread. A wait that was cancelled counts as done.
    """

    def __await__(self) -> Generator[Any, Any, None]:
        """Wait for the result."""

    def done(self) -> bool:
        """Whether nobody waits any more."""

    def set_result(self, result: None, /) -> None:
        """Wake the task that waits."""


def waiter_maker() -> Callable[[], Waiter]:
    """What makes waiters for the running event loop."""
    # The token is asyncio's loop itself, so `asyncio` need not be imported.
    create_future = getattr(current_token().native_token, "create_future", None)
    if create_future is not None:
        made: Callable[[], Waiter] = create_future
        return made

    import trio  # Installed, since its loop is running.

    return partial(_TrioWaiter, trio.lowlevel)


@final
class _TrioWaiter:
    __slots__ = ("_lowlevel", "_task")

    def __init__(self, lowlevel: ModuleType) -> None:
        self._lowlevel = lowlevel
        self._task: object = None

    def __await__(self) -> Generator[Any, Any, None]:
        self._task = self._lowlevel.current_task()
        waiting: Generator[Any, Any, None] = self._lowlevel.wait_task_rescheduled(
            self._abort
        ).__await__()
        return waiting

    def done(self) -> bool:
        return self._task is None

    def set_result(self, result: None, /) -> None:
        task, self._task = self._task, None
        self._lowlevel.reschedule(task)

    def _abort(self, raise_cancel: object) -> object:
        self._task = None
        return self._lowlevel.Abort.SUCCEEDED
