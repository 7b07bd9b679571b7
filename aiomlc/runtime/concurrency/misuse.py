"""Base classes of objects that explain themselves to `for`, `with`, `async for` and `async with`.

Their methods are hidden from type checkers, which report such a misuse because they are missing.
"""

from __future__ import annotations

__all__ = (
    "AsyncIterationOnly",
    "AsyncScopeFirst",
    "AsyncScopeOnly",
    "IterationOnly",
    "ScopeOnly",
    "not_entered",
)

from typing import TYPE_CHECKING, ClassVar

from aiomlc.errors import BadRequestError

_IN_BLOCKING_CODE = "or `MLCEngine` in code without async"
_IN_ASYNC_CODE = "or `AsyncMLCEngine` in async code"


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


def not_entered(example: str) -> BadRequestError:
    """Return the error of an object that is used before its scope is entered by `example`."""
    return BadRequestError(f"the scope is not entered: write `{example}`, and iterate inside of it")
