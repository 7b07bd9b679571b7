"""Base classes of objects that explain themselves to `for`, `with`, `async for` and `async with`.

Their methods are hidden from type checkers, which report such a misuse because they are missing.
"""

from __future__ import annotations

__all__ = (
    "AsyncIterationOnly",
    "AsyncScopeFirst",
    "AsyncScopeOnly",
    "IterationOnly",
    "NotCallable",
    "ScopeOnly",
    "Uncopyable",
    "explains",
    "keyword_only",
    "not_entered",
)

import inspect
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, ClassVar, NoReturn, TypeVar, cast

from aiomlc.errors import BadRequestError

_IN_BLOCKING_CODE = "or `MLCEngine` in code without async"
_IN_ASYNC_CODE = "or `AsyncMLCEngine` in async code"
_MESSAGES_EXAMPLE = 'messages=[{"role": "user", "content": ...}]'


_Class = TypeVar("_Class", bound=type)
_Method = TypeVar("_Method", bound=Callable[..., object])


def explains(**hints: str) -> Callable[[_Class], _Class]:
    """Let the AttributeError of an attribute that a class does not have say what to write."""

    def fail(self: object, name: str) -> NoReturn:
        hint = f": {hints[name]}" if name in hints else ""
        message = f"{type(self).__name__!r} object has no attribute {name!r}{hint}"
        raise AttributeError(message, name=name, obj=self)

    def decorate(cls: _Class) -> _Class:
        type.__setattr__(cls, "__getattr__", fail)
        return cls

    return decorate


def keyword_only(method: _Method) -> _Method:
    """Let the TypeError of a positional argument, or of a prompt to a chat, name the keyword."""
    first = list(inspect.signature(method).parameters)[1]
    message = f"{method.__qualname__}() takes keyword arguments only: write `{first}=...`"
    chat = f"{method.__qualname__}() takes a chat: write `{_MESSAGES_EXAMPLE}` for `prompt=...`"

    @wraps(method)
    def call(self: object, *values: object, **fields: object) -> object:
        if values:
            raise TypeError(message)

        if first == "messages" and "prompt" in fields and "messages" not in fields:
            raise TypeError(chat)

        return method(self, **fields)

    return cast("_Method", call)


class AsyncScopeOnly:
    """An object that has `async with`, and not `with`."""

    if not TYPE_CHECKING:

        def __enter__(self):  # noqa: ANN204
            raise TypeError(
                f"{type(self).__name__} is an asynchronous context manager: use `async with`, "
                f"{_IN_BLOCKING_CODE}"
            )

        def __exit__(self, *exc_info):  # noqa: ANN002, ANN204
            raise NotImplementedError


class AsyncScopeFirst(AsyncScopeOnly):
    """An object whose `async with` gives an iterator, and which is none itself."""

    _scope_example: ClassVar[str]  #: The statement to write: `async with ... as results:`.

    if not TYPE_CHECKING:

        def __aiter__(self):  # noqa: ANN204
            raise not_entered(self._scope_example)

        def __await__(self):  # noqa: ANN204
            raise not_entered(self._scope_example)

        def __iter__(self):  # noqa: ANN204
            raise not_entered(self._scope_example)


class AsyncIterationOnly(AsyncScopeOnly):
    """An object that has `async for` and `async with`, and not `for` and `with`."""

    if not TYPE_CHECKING:

        def __iter__(self):  # noqa: ANN204
            raise TypeError(
                f"{type(self).__name__} is an asynchronous iterator: use `async for`, "
                f"{_IN_BLOCKING_CODE}"
            )


class ScopeOnly:
    """An object that has `with`, and not `async with`."""

    if not TYPE_CHECKING:

        async def __aenter__(self):  # noqa: ANN204
            raise TypeError(
                f"{type(self).__name__} is a blocking context manager: use `with`, {_IN_ASYNC_CODE}"
            )

        async def __aexit__(self, *exc_info):  # noqa: ANN002, ANN204
            raise NotImplementedError


class IterationOnly(ScopeOnly):
    """An object that has `for` and `with`, and not `async for` and `async with`."""

    if not TYPE_CHECKING:

        def __aiter__(self):  # noqa: ANN204
            raise TypeError(
                f"{type(self).__name__} is a blocking iterator: use `for`, {_IN_ASYNC_CODE}"
            )


class NotCallable:
    """An object whose method is meant where it is called like a function."""

    _call_example: ClassVar[str]  #: The call to write.

    if not TYPE_CHECKING:

        def __call__(self, *values, **fields):  # noqa: ANN002, ANN003, ANN204
            raise TypeError(
                f"{type(self).__name__} is not a function: write `{self._call_example}`"
            )


class Uncopyable:
    """An object with threads and memory of its own, which cannot be copied or pickled."""

    if not TYPE_CHECKING:

        def __reduce_ex__(self, protocol):  # noqa: ANN001, ANN204
            raise TypeError(
                f"{type(self).__name__} cannot be copied or pickled: open another one, which "
                "shares the model's weights in memory"
            )


def not_entered(example: str) -> BadRequestError:
    """Return the error of an object that is used before its scope is entered by `example`."""
    return BadRequestError(f"the scope is not entered: write `{example}`, and iterate inside of it")
