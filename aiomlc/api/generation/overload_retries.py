"""Requests that wait for a full queue."""

from __future__ import annotations

__all__ = ("OverloadRetries",)

from collections.abc import Awaitable, Callable
from typing import TypeVar, final

from anyio import Lock, sleep

from aiomlc.errors import EngineOverloadedError

T = TypeVar("T")

_RETRY_SECONDS = 0.05


@final
class OverloadRetries:
    """Repeats the requests of a batch that find the engine's queue full, one at a time."""

    def __init__(self) -> None:
        self._num_running = 0
        self._num_started = 0
        self._retrying = Lock()

    async def run(self, request: Callable[[], Awaitable[T]], is_idle: Callable[[], bool]) -> T:
        """Run a request until the engine accepts it.

        Args:
            request: Submits the request, and returns its result.

        Raises:
            EngineOverloadedError: If an engine that had nothing else to do rejects the request,
                which has more choices than its queue takes.
        """
        try:
            return await self._attempt(request)
        except EngineOverloadedError:
            async with self._retrying:
                while True:
                    was_idle = self._num_running == 0 and is_idle()
                    num_started = self._num_started
                    try:
                        return await self._attempt(request)
                    except EngineOverloadedError:
                        # Others may have filled the queue while this one was being prepared.
                        if was_idle and self._num_started == num_started + 1:
                            raise

                        await sleep(_RETRY_SECONDS)

    async def _attempt(self, request: Callable[[], Awaitable[T]]) -> T:
        self._num_running += 1
        self._num_started += 1
        try:
            return await request()
        finally:
            self._num_running -= 1
