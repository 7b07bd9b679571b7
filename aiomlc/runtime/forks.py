"""What a child process inherits of an engine: its memory, and none of the threads that use it.

So nothing of it can serve there, and freeing it would wait for those threads for ever.
"""

from __future__ import annotations

__all__ = ("OF_THE_PARENT", "Inherited", "abandon_in_children", "leak")

import ctypes
import os
import weakref
from typing import Protocol

OF_THE_PARENT = "the engine belongs to the parent process: open another one in this one"


class Inherited(Protocol):
    """What a child process must not use."""

    def abandon(self) -> None:
        """Refuse to serve, and free nothing. In the child, before anything else runs there."""


_inherited: weakref.WeakSet[Inherited] = weakref.WeakSet()


def abandon_in_children(owner: Inherited) -> None:
    """Have `owner.abandon` called in every process that is forked from this one."""
    _inherited.add(owner)


def leak(value: object) -> None:
    """Keep an object for as long as the process lives, its end included."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))


def _abandon_all() -> None:
    for owner in list(_inherited):
        owner.abandon()


os.register_at_fork(after_in_child=_abandon_all)
