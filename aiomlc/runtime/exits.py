"""The end of the interpreter, which waits for no daemon thread.

A thread that comes back from native code after that is unwound through it, and the process aborts.
"""

from __future__ import annotations

__all__ = ("Ending", "end_at_exit")

import atexit
import weakref
from typing import Protocol


class Ending(Protocol):
    """What must not run when the interpreter is gone."""

    def end_at_exit(self) -> None:
        """Let every thread leave native code, and wait for that."""


_endings: weakref.WeakSet[Ending] = weakref.WeakSet()


def end_at_exit(owner: Ending) -> None:
    """Have `owner.end_at_exit` called when the interpreter ends, unless it is garbage by then."""
    _endings.add(owner)


@atexit.register
def _end_all() -> None:
    for owner in list(_endings):
        owner.end_at_exit()
