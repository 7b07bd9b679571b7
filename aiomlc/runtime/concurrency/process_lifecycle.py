"""The end of the interpreter, which waits for every thread but the daemons.

A thread whose engine nobody can stop any more would be waited for without an end. And a daemon that
comes back from native code after the end is unwound through it, and the process aborts.
"""

from __future__ import annotations

__all__ = (
    "FORKED_MESSAGE",
    "Ending",
    "Inherited",
    "at_exit",
    "invalidate_after_fork",
    "leak",
)

import atexit
import ctypes
import os
import threading
import weakref
from typing import Protocol


class Ending(Protocol):
    """What must not run when the interpreter is gone."""

    def end_orphan(self) -> None:
        """Stop if the event loop cannot run any more. Before the threads are waited for."""

    def at_exit(self) -> None:
        """Let every thread leave native code, and wait for that."""


_endings: weakref.WeakSet[Ending] = weakref.WeakSet()


def at_exit(owner: Ending) -> None:
    """Have these two called when the interpreter ends, unless it is garbage by then."""
    _endings.add(owner)


def _end_orphans() -> None:
    for owner in list(_endings):
        owner.end_orphan()


# What `concurrent.futures` does for its threads: `atexit` comes after they were waited for.
_register = getattr(threading, "_register_atexit", None)
if _register is not None:
    _register(_end_orphans)


@atexit.register
def _end_all() -> None:
    for owner in list(_endings):
        owner.at_exit()


FORKED_MESSAGE = "the engine belongs to the parent process: open another one in this one"


class Inherited(Protocol):
    """What a child process must not use."""

    def abandon(self) -> None:
        """Refuse to serve, and free nothing. In the child, before anything else runs there."""


_inherited: weakref.WeakSet[Inherited] = weakref.WeakSet()


def invalidate_after_fork(owner: Inherited) -> None:
    """Have `owner.abandon` called in every process that is forked from this one."""
    _inherited.add(owner)


def leak(value: object) -> None:
    """Keep an object for as long as the process lives, its end included."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))


def _abandon_all() -> None:
    for owner in list(_inherited):
        owner.abandon()


os.register_at_fork(after_in_child=_abandon_all)
