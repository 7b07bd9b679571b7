"""What one task waits for, once: cheaper than an event, which any number may wait for."""

from __future__ import annotations

__all__ = ("Waiter", "waiter_maker")

from collections.abc import Callable, Generator
from functools import partial
from types import ModuleType
from typing import Any, Protocol, final

from anyio.lowlevel import current_token


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
