"""Short tracebacks of the library's own errors, whose messages say what is wrong."""

from __future__ import annotations

__all__ = ("first_leaf", "keep_origin", "keep_own_frames", "keeps_origin")

from collections.abc import Callable, Coroutine
from functools import wraps
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from aiomlc.errors import AiomlcError, RequestError

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")

# Modules that only pass calls and errors on.
_PLUMBING = "aiomlc.runtime.concurrency."


def keep_own_frames(error: AiomlcError) -> AiomlcError:
    """Remove the frames of futures, portals and context managers from a caught error's traceback.

    The frame that caught the error is removed, too: raising the error adds it again.
    """
    traceback = None
    for entry in reversed(_own_entries(error)):
        traceback = _before(entry, traceback)

    return error.with_traceback(traceback)


def first_leaf(group: BaseExceptionGroup[BaseException], kind: type[Exception]) -> BaseException:
    """Return the first interrupt of a group of tasks, else the first error of a kind, else any."""
    interrupts = group.subgroup(lambda e: not isinstance(e, (Exception, BaseExceptionGroup)))
    error: BaseException = interrupts or group.subgroup(kind) or group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def keep_origin(error: AiomlcError) -> AiomlcError:
    """Remove all frames from a caught error's traceback, except for the one that raised it."""
    entries = _own_entries(error)
    return error.with_traceback(_before(entries[-1], None) if entries else None)


def keeps_origin(
    function: Callable[_Parameters, Coroutine[Any, Any, _Result]],
) -> Callable[_Parameters, Coroutine[Any, Any, _Result]]:
    """Let the request errors of a coroutine function have only the frame that raised them."""

    @wraps(function)
    async def call(*args: _Parameters.args, **fields: _Parameters.kwargs) -> _Result:
        try:
            return await function(*args, **fields)
        except RequestError as error:
            raise keep_origin(error) from error.__cause__

    return call


def _own_entries(error: AiomlcError) -> list[TracebackType]:
    traceback = error.__traceback__ and error.__traceback__.tb_next
    entries: list[TracebackType] = []
    while traceback is not None:
        module = str(traceback.tb_frame.f_globals.get("__name__"))
        if module.startswith("aiomlc") and not module.startswith(_PLUMBING):
            entries.append(traceback)

        traceback = traceback.tb_next

    return entries


def _before(entry: TracebackType, rest: TracebackType | None) -> TracebackType:
    return TracebackType(rest, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
