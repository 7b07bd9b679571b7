"""Handlers for the exit of the interpreter and for forks.

The interpreter joins all threads except daemon threads at its exit, so it would wait forever for
the thread of an engine that no code can stop any more. A daemon thread that returns from native
code after finalization is terminated by unwinding its stack, which aborts the process.
"""

from __future__ import annotations

__all__ = (
    "EXIT_SECONDS",
    "FORKED_MESSAGE",
    "ExitHandler",
    "ForkHandler",
    "NativeCalls",
    "at_exit",
    "invalidate_after_fork",
    "leak",
    "unleak",
)

import atexit
import ctypes
import os
import threading
import weakref
from typing import Final, Protocol, final

from aiomlc.errors import EngineClosedError

EXIT_SECONDS: Final = 5.0  #: The longest wait of the interpreter's exit for an owner of threads.


class ExitHandler(Protocol):
    """An object that must stop its threads before the interpreter is finalized."""

    def stop_if_orphaned(self) -> None:
        """Stop if the event loop cannot run any more. Called before threads are joined."""
        ...

    def at_exit(self) -> None:
        """Make every thread leave native code, and wait for that."""
        ...


_exit_handlers: weakref.WeakSet[ExitHandler] = weakref.WeakSet()


def at_exit(owner: ExitHandler) -> None:
    """Call the methods of `owner` when the interpreter exits; `owner` is referenced weakly."""
    _exit_handlers.add(owner)


def _stop_orphans() -> None:
    for owner in list(_exit_handlers):
        owner.stop_if_orphaned()


# As in `concurrent.futures`: functions of `atexit` run only after threads have been joined.
_register = getattr(threading, "_register_atexit", None)
if _register is not None:
    _register(_stop_orphans)


@atexit.register
def _run_exit_handlers() -> None:
    for owner in list(_exit_handlers):
        owner.at_exit()


FORKED_MESSAGE = "the engine belongs to the parent process: open another engine in this process"


class ForkHandler(Protocol):
    """An object that a forked child process must not use."""

    def abandon(self) -> None:
        """Reject further use and free nothing. Called in the child before any other code."""
        ...


_fork_handlers: weakref.WeakSet[ForkHandler] = weakref.WeakSet()


def invalidate_after_fork(owner: ForkHandler) -> None:
    """Call `owner.abandon` in every process that is forked from this one."""
    _fork_handlers.add(owner)


def leak(value: object) -> None:
    """Never free an object, not even when the process exits."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))


def unleak(value: object) -> None:
    """Undo one `leak`."""
    ctypes.pythonapi.Py_DecRef(ctypes.py_object(value))


def _abandon_all() -> None:
    for owner in list(_fork_handlers):
        owner.abandon()


os.register_at_fork(after_in_child=_abandon_all)


@final
class NativeCalls:
    """Counts calls of native code that calls Python; the interpreter's exit waits for their end."""

    def __init__(self) -> None:
        self.abandon()
        invalidate_after_fork(self)
        at_exit(self)

    def __enter__(self) -> None:
        """Begin a call.

        Raises:
            EngineClosedError: If the interpreter exits.
        """
        with self._changed:
            if self._is_exiting:
                raise EngineClosedError

            self._num_calls += 1

    def __exit__(self, *exc_info: object) -> None:
        """End a call."""
        with self._changed:
            self._num_calls -= 1
            self._changed.notify_all()

    def stop_if_orphaned(self) -> None:
        """Do nothing: a call ends by itself."""

    def at_exit(self) -> None:
        """Reject further calls, and wait for those in other threads."""
        with self._changed:
            self._is_exiting = True
            self._changed.wait_for(lambda: self._num_calls == 0, EXIT_SECONDS)

    def abandon(self) -> None:
        """Forget the calls of the parent process."""
        self._changed = threading.Condition()
        self._num_calls = 0
        self._is_exiting = False
