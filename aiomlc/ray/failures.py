"""Converts Ray's exceptions to errors of this library."""

from __future__ import annotations

__all__ = ("to_library_error",)

from aiomlc.errors import (
    AiomlcError,
    EngineError,
    EngineOverloadedError,
    ReplicaLostError,
    RequestFailedError,
)

# By name, so that Ray need not be imported. A class precedes those that it may be derived from:
# an error of a task is also of the class of its cause.
_LOST = frozenset(
    {"RayActorError", "ObjectLostError", "OwnerDiedError", "NodeDiedError", "WorkerCrashedError"}
)
_OVERLOADED = frozenset({"BackPressureError"})
_UNAVAILABLE = frozenset({"RayServeException", "RaySystemError"})
_FAILED = frozenset({"RayTaskError"})


def to_library_error(error: Exception, *, has_output: bool) -> AiomlcError | None:
    """Return the library's exception for one of Ray's; None for any other exception.

    Args:
        has_output: Whether a part of the response had arrived.
    """
    if isinstance(error, AiomlcError):
        return error

    names = {cls.__name__ for cls in type(error).__mro__}
    if names & _LOST:
        return ReplicaLostError(has_output=has_output)

    if names & _OVERLOADED:
        return EngineOverloadedError("the queue of requests for the replicas is full")

    if names & _FAILED:
        return RequestFailedError(f"the request failed in its replica: {_first_line(error)}")

    if names & _UNAVAILABLE:
        return EngineError(f"no replica can serve the request: {_first_line(error)}")

    return None


def _first_line(error: Exception) -> str:
    cause = getattr(error, "cause", None) or error
    return f"{type(cause).__name__}: {str(cause).partition(chr(10))[0]}"
