"""The admission of requests: limits on concurrent requests, and draining."""

from __future__ import annotations

__all__ = ("Admission",)

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import final

from anyio import Event
from anyio.lowlevel import checkpoint

from aiomlc.serve.http.http_errors import HTTPError
from aiomlc.serve.options import ServerOptions


@final
class Admission:
    """The requests that are being answered, by API key."""

    def __init__(self, options: ServerOptions) -> None:
        self.is_draining: bool = False
        self._max_requests = options.max_requests
        self._max_per_key = options.max_requests_per_key
        self._running: Counter[int] = Counter()  # By the index of the key.
        self._num_running = 0
        self._became_idle: Event | None = None  # While `wait_idle` waits.

    @property
    def num_running(self) -> int:
        """The number of admitted requests that have not ended."""
        return self._num_running

    @contextmanager
    def admit(self, key: int) -> Iterator[None]:
        """Count a request while the scope lasts.

        Args:
            key: The index of the request's API key; -1 if the server has no keys.

        Raises:
            HTTPError: If the server is draining (503), or a limit is reached (429).
        """
        self._check(key)
        self._running[key] += 1
        self._num_running += 1
        try:
            yield
        finally:
            self._running[key] -= 1
            self._num_running -= 1
            if self._num_running == 0 and self._became_idle is not None:
                self._became_idle.set()

    async def wait_idle(self) -> None:
        """Wait until no admitted request is left."""
        await checkpoint()
        while self._num_running > 0:
            self._became_idle = Event()
            await self._became_idle.wait()

    def _check(self, key: int) -> None:
        if self.is_draining:
            raise HTTPError(
                503,
                "the server is draining: it accepts no new requests",
                code="draining",
                headers={"retry-after": "5", "connection": "close"},
            )

        if self._num_running >= self._max_requests:
            raise _too_many("all clients", self._max_requests)

        if self._max_per_key is not None and self._running[key] >= self._max_per_key:
            raise _too_many("one API key", self._max_per_key)


def _too_many(who: str, limit: int) -> HTTPError:
    return HTTPError(
        429,
        f"{limit} requests of {who} are running, which is the limit; try again later",
        code="too_many_requests",
        headers={"retry-after": "1"},
    )
