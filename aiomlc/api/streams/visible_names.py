"""Hides names of an object from `dir()`, and so from a notebook's completion."""

from __future__ import annotations

__all__ = ("hides",)

from collections.abc import Callable, Iterable
from typing import TypeVar

_Class = TypeVar("_Class", bound=type)


def hides(*names: str) -> Callable[[_Class], _Class]:
    """Leave methods that only other modules of the library call out of `dir()` of instances."""
    hidden = frozenset(names)

    def list_names(self: object) -> Iterable[str]:
        return [name for name in object.__dir__(self) if name not in hidden]

    def decorate(cls: _Class) -> _Class:
        type.__setattr__(cls, "__dir__", list_names)
        return cls

    return decorate
