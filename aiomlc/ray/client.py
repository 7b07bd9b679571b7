"""Calls of replicas, and what happens when one is lost."""

from __future__ import annotations

__all__ = ("ReplicaClient", "ReplicaHandle", "ReplicaStream")

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Protocol, final

from aiomlc.errors import ReplicaLostError
from aiomlc.ray.exchange import AppRequest, ResponseBatch
from aiomlc.ray.failures import to_library_error

# What keeps a connection alive is not output: the request may start again.
_COMMENT = b": ping\n\n"


class ReplicaStream(Protocol):
    """A response of a replica: Ray Serve's `DeploymentResponseGenerator`."""

    def __aiter__(self) -> AsyncIterator[Any]: ...

    def cancel(self) -> None:
        """Cancel the call."""
        ...


class ReplicaHandle(Protocol):
    """A handle that calls a replica's `stream`."""

    def __call__(self, request: AppRequest, /) -> ReplicaStream: ...


@final
class ReplicaClient:
    """Sends requests to the replicas of an application.

    Args:
        send: Starts a call of any replica: `handle.options(stream=True).stream.remote`.
        max_retries: How often a request is sent again whose replica was lost before it had any
            output.
    """

    def __init__(self, send: ReplicaHandle, *, max_retries: int) -> None:
        self._send = send
        self._max_retries = max_retries

    async def answer(
        self, request: AppRequest, write: Callable[[ResponseBatch], Awaitable[None]]
    ) -> None:
        """Send a request, and call `write` with each part of the response.

        If a replica is lost before it had any output, the request is sent to another one. Then a
        second status may follow the comments of the first response.

        Raises:
            ReplicaLostError: If the replica is lost after it had output, or too many are lost.
            EngineOverloadedError: If the queue of requests is full.
            EngineError: If no replica can serve the request.
            RequestFailedError: If the replica failed on this request.
        """
        for num_retries in range(self._max_retries + 1):
            has_output = False
            try:
                async with _call(self._send, request) as batches:
                    async for batch in batches:
                        has_output = has_output or bool(batch.body.replace(_COMMENT, b""))
                        await write(batch)

                return
            except Exception as error:
                failure = to_library_error(error, has_output=has_output)
                if failure is None:
                    raise

                can_retry = isinstance(failure, ReplicaLostError) and not has_output
                if not can_retry or num_retries == self._max_retries:
                    raise failure from error


@asynccontextmanager
async def _call(send: ReplicaHandle, request: AppRequest) -> AsyncIterator[ReplicaStream]:
    """Start a call; leaving the scope before its end cancels it."""
    batches = send(request)
    is_complete = False
    try:
        yield batches
        is_complete = True
    finally:
        if not is_complete:
            batches.cancel()
