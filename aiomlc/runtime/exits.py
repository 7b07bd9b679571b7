"""The end of the interpreter, which waits for every thread but the daemons.

A thread whose engine nobody can stop any more would be waited for without an end. And a daemon that
comes back from native code after the end is unwound through it, and the process aborts.
"""

from __future__ import annotations

__all__ = ("Ending", "end_at_exit")

import atexit
import threading
import weakref
from typing import Protocol


class Ending(Protocol):
    """What must not run when the interpreter is gone."""

    def end_orphan(self) -> None:
        """Stop if the event loop cannot run any more. Before the threads are waited for."""

    def end_at_exit(self) -> None:
        """Let every thread leave native code, and wait for that."""


_endings: weakref.WeakSet[Ending] = weakref.WeakSet()


def end_at_exit(owner: Ending) -> None:
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
        owner.end_at_exit()
