"""Protection against KeyboardInterrupt, which Python raises between any two instructions.

- asyncio: `asyncio.run` cancels the main task instead. Without it, an interrupt may land in the
  engine's own tasks, which then raise it in the event loop (`raise_in_loop`).
- trio: it raises the interrupt in the task that runs, unless a function is protected.
- Code without async: `deferred_interrupts`.
"""

from __future__ import annotations

__all__ = (
    "UninterruptibleScope",
    "deferred_interrupts",
    "protect_from_interrupts",
    "raise_in_loop",
    "uninterruptible",
)

import signal
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from functools import partial
from typing import Any, NoReturn, Self, TypeVar

from anyio.lowlevel import current_token

from aiomlc.runtime.concurrency.event_loop import run_soon
from aiomlc.runtime.concurrency.misuse import AsyncScopeOnly

F = TypeVar("F", bound=Callable[..., Any])

_unprotected: list[Callable[..., Any]] = []


def uninterruptible(function: F) -> F:
    """Mark a function that trio must not interrupt; `protect_from_interrupts` makes it so.

    The interrupt is then raised at the next checkpoint of trio's main task.
    """
    _unprotected.append(function)
    return function


def protect_from_interrupts() -> None:
    """Protect the functions marked `uninterruptible`, if trio is in use."""
    if "trio.lowlevel" in sys.modules:
        import trio

        while _unprotected:
            trio.lowlevel.enable_ki_protection(_unprotected.pop())


def raise_in_loop(error: KeyboardInterrupt) -> None:
    """Raise an interrupt in asyncio's loop, outside of any task, so that it ends no task."""
    run_soon(current_token(), partial(_raise, error))


def _raise(error: BaseException) -> NoReturn:
    raise error


@contextmanager
def deferred_interrupts() -> Iterator[None]:
    """Raise an interrupt only at the end of the scope, which must be short."""
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return

    received: list[tuple[int, Any]] = []
    signal.signal(signal.SIGINT, lambda *signal_and_frame: received.append(signal_and_frame))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if received:
            handler(*received[0])


class UninterruptibleScope(AsyncScopeOnly, ABC):
    """An async context manager that trio does not interrupt while it is entered or left.

    An interrupt there would leave a cancel scope open, which trio reports as an internal error.
    """

    _entered: AbstractAsyncContextManager[object] | None = None

    @abstractmethod
    def __asynccontextmanager__(self) -> AbstractAsyncContextManager[object]:
        """Return the context manager of the scope, as anyio's `AsyncContextManagerMixin` does."""

    @uninterruptible
    async def __aenter__(self) -> Self:
        protect_from_interrupts()
        if self._entered is not None:
            raise RuntimeError(f"this {type(self).__name__} has already been entered")

        scope = self.__asynccontextmanager__()
        await scope.__aenter__()
        self._entered = scope
        return self

    @uninterruptible
    async def __aexit__(self, *exc_info: Any) -> bool | None:  # noqa: ANN401 - passed on.
        scope, self._entered = self._entered, None
        assert scope is not None, "only an entered scope is left"
        return await scope.__aexit__(*exc_info)
