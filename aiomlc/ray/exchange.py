"""A request to an ASGI application, and its response in batches."""

from __future__ import annotations

__all__ = ("AppExchange", "AppRequest", "ResponseBatch")

import logging
from dataclasses import dataclass, field
from typing import Any, final

from anyio import Event, move_on_after
from anyio.lowlevel import checkpoint
from starlette.types import ASGIApp, Message, Scope

from aiomlc.runtime.concurrency.event_loop import spawn_system_task

# Bytes of the body that wait to be taken; at more, the application waits, as behind a socket.
_BUFFER_SIZE = 2**16
_LOG = logging.getLogger("aiomlc")
_SCOPE_FIELDS = (
    *("http_version", "method", "scheme", "path", "raw_path", "query_string", "root_path"),
    *("headers", "server", "client"),
)


@dataclass(frozen=True, slots=True)
class AppRequest:
    """An HTTP request on its way to a replica."""

    scope: dict[str, Any]  #: The fields of ASGI's scope that can be sent to another process.
    body: bytes = field(repr=False)
    prefix_key: str | None = None  #: The key for prefix-aware routing.

    @classmethod
    def from_scope(cls, scope: Scope, body: bytes, prefix_key: str | None = None) -> AppRequest:
        """Return the request of an ASGI scope."""
        fields = {name: scope[name] for name in _SCOPE_FIELDS if name in scope}
        fields["headers"] = [(bytes(name), bytes(value)) for name, value in scope["headers"]]
        return cls(fields, body, prefix_key)


@dataclass(frozen=True, slots=True)
class ResponseBatch:
    """The part of a response that became ready since the last one."""

    status: int | None  #: In the first batch.
    headers: list[tuple[bytes, bytes]]  #: In the first batch; otherwise empty.
    body: bytes = field(repr=False)
    is_last: bool


@final
class AppExchange:
    """A request that an application answers in a task of its own, on asyncio or trio.

    Args:
        interval: Seconds between two batches, at least; the first and the last do not wait.
    """

    def __init__(self, app: ASGIApp, request: AppRequest, *, interval: float) -> None:
        self._app = app
        self._request = request
        self._interval = interval
        self._has_body_been_read = False
        self._status: int | None = None
        self._headers: list[tuple[bytes, bytes]] = []
        self._parts: list[bytes] = []
        self._size = 0  # Of `_parts`.
        self._is_complete = False
        self._failure: Exception | None = None
        self._changed = Event()  # There is something to take, or the application has ended.
        self._taken = Event()
        self._ended = Event()
        self._disconnected = Event()
        self._has_begun = False
        self._task: object = None  # asyncio has only weak references to its tasks.

    def start(self) -> None:
        """Start the application in the running event loop."""
        self._task = spawn_system_task(self._run, name="aiomlc request")

    async def receive_batch(self) -> ResponseBatch:
        """Wait for the next part of the response.

        Raises:
            Exception: What the application raised.
            RuntimeError: If the application ended before its response was complete.
        """
        if self._has_begun:
            with move_on_after(self._interval):
                await self._ended.wait()

        while not self._parts and not self._ended.is_set():
            self._changed = Event()
            await self._changed.wait()

        return self._take()

    def disconnect(self) -> None:
        """Tell the application that nobody reads any more; what it still sends is dropped."""
        self._disconnected.set()
        self._taken.set()

    def _take(self) -> ResponseBatch:
        if not self._parts and not self._is_complete:  # It has ended.
            if self._failure is not None:
                raise self._failure

            raise RuntimeError("the application ended before its response was complete")

        body = b"".join(self._parts)
        batch = ResponseBatch(self._status, self._headers, body, self._is_complete)
        self._has_begun = True
        self._status, self._headers = None, []
        self._parts.clear()
        self._size = 0
        self._taken.set()
        return batch

    async def _run(self) -> None:
        try:
            await self._app(self._scope(), self._receive, self._send)
        except Exception as error:  # noqa: BLE001 - raised by the reader.
            self._failure = error
            if self._is_complete:  # There is nothing more to read.
                _LOG.error("The application failed after its response.", exc_info=error)
        finally:
            self._end()
            self._task = None

    def _end(self) -> None:
        self._ended.set()
        self._changed.set()

    def _scope(self) -> Scope:
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            **self._request.scope,
        }

    async def _receive(self) -> Message:
        if not self._has_body_been_read:
            self._has_body_been_read = True
            await checkpoint()
            return {"type": "http.request", "body": self._request.body, "more_body": False}

        await self._disconnected.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        await checkpoint()
        if message["type"] == "http.response.start":
            self._status = message["status"]
            self._headers = [(bytes(name), bytes(value)) for name, value in message["headers"]]
        else:
            await self._add(message.get("body", b""), message.get("more_body", False))

        self._changed.set()

    async def _add(self, part: bytes, has_more: bool) -> None:
        while self._size >= _BUFFER_SIZE and not self._disconnected.is_set():
            self._taken = Event()
            await self._taken.wait()

        if part and not self._disconnected.is_set():
            self._parts.append(bytes(part))
            self._size += len(part)

        if not has_more:
            self._is_complete = True
            self._end()
