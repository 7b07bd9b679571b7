"""Typed errors for what the system lacks: threads and memory."""

from __future__ import annotations

__all__ = ("names_shortages", "shortage_errors")

from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from aiomlc.errors import AiomlcError, EngineError

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")

_NO_THREAD = "can't start new thread"  # What `threading` raises a RuntimeError with.


@contextmanager
def shortage_errors() -> Iterator[None]:
    """Map the errors for a thread that cannot be started, and for memory that there is not.

    Raises:
        EngineError: In their place.
    """
    try:
        yield
    except AiomlcError:
        raise
    except MemoryError as error:
        detail = str(error) or "an allocation failed"
        raise EngineError(f"there is not enough memory: {detail}") from error
    except RuntimeError as error:
        if str(error) != _NO_THREAD:
            raise

        raise EngineError(
            "cannot start a thread: allow the process more memory or more threads (ulimit -u, or "
            "the limit of processes of its container)"
        ) from error


def names_shortages(
    function: Callable[_Parameters, Coroutine[Any, Any, _Result]],
) -> Callable[_Parameters, Coroutine[Any, Any, _Result]]:
    """Run a coroutine function within `shortage_errors`."""

    @wraps(function)
    async def call(*args: _Parameters.args, **fields: _Parameters.kwargs) -> _Result:
        with shortage_errors():
            return await function(*args, **fields)

        raise AssertionError("the context suppresses no exception")

    return call
