"""The running event loop of asyncio or trio: its identity, system tasks, and waiters.

anyio's token gives access to asyncio's loop, so `asyncio` is never imported.
"""

from __future__ import annotations

__all__ = (
    "Waiter",
    "check_loop",
    "check_threads",
    "run_soon",
    "running_loop",
    "runs_event_loop",
    "spawn_system_task",
    "waiter_factory",
)

import sys
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from functools import partial
from types import ModuleType
from typing import Any, Protocol, final

from anyio import NoEventLoopError, RunFinishedError
from anyio.lowlevel import EventLoopToken, current_token

from aiomlc.errors import EngineClosedError, EngineError


def running_loop() -> object:
    """Return the identity of the event loop that runs in this thread."""
    loop: object = current_token().native_token
    return loop


def runs_event_loop() -> bool:
    """Return whether an event loop runs in this thread."""
    try:
        running_loop()
    except NoEventLoopError:
        return False

    return True


def check_loop(owner: object) -> None:
    """Require that the running event loop is `owner`.

    Raises:
        EngineClosedError: If another event loop runs in this thread.
    """
    if running_loop() is not owner:
        raise EngineClosedError(
            "the engine serves another event loop: open an engine in each loop, or call this one "
            "through engine.portal"
        )


def check_threads() -> None:
    """Require that gevent has not replaced Python's threads; an event loop would wait for ever.

    Raises:
        EngineError: If it has.
    """
    gevent = sys.modules.get("gevent.monkey")
    if gevent is not None and any(map(gevent.is_module_patched, ("threading", "queue"))):
        raise EngineError(
            "gevent has replaced Python's threads, and engines need real ones: use "
            "monkey.patch_all(thread=False, queue=False), or a client of `aiomlc serve`"
        )


def run_soon(token: EventLoopToken, function: Callable[[], object]) -> None:
    """Call a function in an event loop, from any thread; do nothing if the loop has ended."""
    with suppress(RunFinishedError):
        token.backend_class.run_sync_soon(function, (), token.native_token)


def spawn_system_task(function: Callable[[], Coroutine[Any, Any, None]], *, name: str) -> object:
    """Run `function` as a task of the running event loop, outside of any task group.

    When the loop's main task has ended, both backends cancel the task and wait for it. The function
    must not raise: trio reports an exception of a system task as an internal error.

    Returns:
        The task, which must be kept until it ends, because asyncio only has weak references to it.
    """
    loop = current_token().native_token
    # With asyncio, the token is the loop.
    create_task = getattr(loop, "create_task", None)
    if create_task is not None:
        return create_task(function(), name=name)

    import trio  # It is installed, because its loop is running.

    return trio.lowlevel.spawn_system_task(function, name=name)


class Waiter(Protocol):
    """The part of an asyncio future that a reader and its waker need, both in one thread.

    It must be awaited immediately, and only once. A cancelled wait counts as done.
    """

    def __await__(self) -> Generator[Any, Any, None]:
        """Wait for the result."""
        ...

    def done(self) -> bool:
        """Whether no task waits any more."""
        ...

    def set_result(self, result: None, /) -> None:
        """Wake the waiting task."""
        ...


def waiter_factory() -> Callable[[], Waiter]:
    """Return a function that makes waiters for the running event loop."""
    # With asyncio, the token is the loop.
    create_future = getattr(current_token().native_token, "create_future", None)
    if create_future is not None:
        factory: Callable[[], Waiter] = create_future
        return factory

    import trio  # It is installed, because its loop is running.

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
