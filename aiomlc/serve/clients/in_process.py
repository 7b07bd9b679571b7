"""Transports of httpx2 and httpx to an ASGI application in the same process, without a socket."""

from __future__ import annotations

__all__ = ("AppTransport", "AsyncAppTransport")

from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Self, final

from anyio import (
    BrokenResourceError,
    ClosedResourceError,
    EndOfStream,
    Event,
    create_memory_object_stream,
    fail_after,
)
from anyio.lowlevel import checkpoint
from starlette.types import ASGIApp, Message

from aiomlc.api.streams.portal import EnginePortal
from aiomlc.runtime.concurrency.event_loop import spawn_system_task

if TYPE_CHECKING:
    import httpx2


@final
class AsyncAppTransport:
    """Sends the requests of an `AsyncClient` of httpx2 or httpx to an ASGI application.

    It runs on asyncio and trio. Each request runs in a task of its own, and the parts of its
    response can be read as the application sends them. Closing a response before its end
    disconnects, as closing a socket does.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request, and return the response when its status is known.

        Raises:
            ReadTimeout: If the response does not begin within the read timeout.
            RemoteProtocolError: If the application ends without a response.
        """
        exchange = _Exchange(self._app, request, await request.aread())
        stream = _stream_class(_AsyncBody, exchange.http.AsyncByteStream)
        return await exchange.response(stream(exchange))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Do nothing: the transport keeps nothing open."""
        await checkpoint()


@final
class AppTransport:
    """Sends the requests of a `Client` of httpx2 or httpx to an ASGI application.

    The application runs in an engine's thread.
    """

    def __init__(self, app: ASGIApp, portal: EnginePortal) -> None:
        self._app = app
        self._portal = portal

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request, and return the response when its status is known.

        Raises:
            EngineClosedError: If the engine was terminated.
            ReadTimeout: If the response does not begin within the read timeout.
            RemoteProtocolError: If the application ends without a response.
        """
        body = request.read()

        async def send() -> httpx2.Response:
            exchange = _Exchange(self._app, request, body)
            stream = _stream_class(_Body, exchange.http.SyncByteStream)
            return await exchange.response(stream(exchange, self._portal))

        return self._portal.call(send)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Do nothing: the transport keeps nothing open."""


class _AsyncBody:
    """The body of a response."""

    def __init__(self, exchange: _Exchange) -> None:
        self._exchange = exchange

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while part := await self._exchange.receive_part():
            yield part

    async def aclose(self) -> None:
        self._exchange.disconnect()
        await checkpoint()


class _Body:
    """The body of a response, for another thread than that of the exchange."""

    def __init__(self, exchange: _Exchange, portal: EnginePortal) -> None:
        self._exchange = exchange
        self._portal = portal

    def __iter__(self) -> Iterator[bytes]:
        while part := self._portal.call(self._exchange.receive_part):
            yield part

    def close(self) -> None:
        self._portal.call_if_open(self._disconnect)

    async def _disconnect(self) -> None:
        self._exchange.disconnect()
        await checkpoint()


@cache
def _stream_class(body: type, base: type) -> type:
    """Return `body` as a subclass of the HTTP library's class of streams, which it insists on."""
    return type(body.__name__, (body, base), {})


@final
class _Exchange:
    """A request, and its response as the application sends it.

    The application waits while a part of the body is unread.

    Attributes:
        http: The library of the request: httpx2, or httpx, which has the same interface.
    """

    def __init__(self, app: ASGIApp, request: httpx2.Request, body: bytes) -> None:
        self.http = import_module(type(request).__module__.partition(".")[0])
        self._app = app
        self._scope = _to_scope(request)
        self._read_timeout: float | None = request.extensions.get("timeout", {}).get("read")
        self._unsent: bytes | None = body
        self._send_part, self._receive_part = create_memory_object_stream[bytes](1)
        self._has_status = Event()
        self._is_disconnected = Event()
        self._is_complete = False
        self._status: int | None = None
        self._headers: list[tuple[bytes, bytes]] = []
        self._failure: Exception | None = None
        self._task: object = None  # asyncio has only weak references to its tasks.

    async def response(
        self, body: httpx2.AsyncByteStream | httpx2.SyncByteStream
    ) -> httpx2.Response:
        """Start the application, and return its response when the status is known."""
        self._task = spawn_system_task(self._run, name="aiomlc request")
        try:
            with self._time_limit():
                await self._has_status.wait()
        except TimeoutError:
            self.disconnect()
            raise self._timeout_error() from None
        except BaseException:
            self.disconnect()
            raise

        if self._status is None:
            raise self._incomplete_error()

        response: httpx2.Response = self.http.Response(
            self._status, headers=self._headers, stream=body
        )
        return response

    async def receive_part(self) -> bytes:
        """Wait for a part of the body; an empty one is its end."""
        try:
            with self._time_limit():
                return await self._receive_part.receive()
        except TimeoutError:
            raise self._timeout_error() from None
        except (EndOfStream, ClosedResourceError):
            if self._is_complete:
                return b""

            raise self._incomplete_error() from None

    def disconnect(self) -> None:
        """Tell the application that nobody reads any more."""
        self._is_disconnected.set()
        self._receive_part.close()

    async def _run(self) -> None:
        try:
            await self._app(self._scope, self._receive, self._send)
        except Exception as error:  # noqa: BLE001 - raised by the reader.
            self._failure = error
        finally:
            self._send_part.close()
            self._has_status.set()
            self._task = None

    async def _receive(self) -> Message:
        body, self._unsent = self._unsent, None
        if body is not None:
            return {"type": "http.request", "body": body, "more_body": False}

        await self._is_disconnected.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            self._headers = list(message.get("headers", ()))
            self._has_status.set()
            return

        part: bytes = message.get("body", b"")
        if part and not self._is_disconnected.is_set():
            await self._send_unless_disconnected(part)

        if not message.get("more_body", False):
            self._is_complete = True
            self._send_part.close()

    async def _send_unless_disconnected(self, part: bytes) -> None:
        try:
            await self._send_part.send(part)
        except BrokenResourceError:  # What is sent after a disconnection is dropped, as by servers.
            await checkpoint()

    def _time_limit(self) -> AbstractContextManager[object]:
        return fail_after(self._read_timeout)

    def _timeout_error(self) -> Exception:
        error: httpx2.ReadTimeout = self.http.ReadTimeout(
            f"nothing was received for {self._read_timeout:g} s"
        )
        return error

    def _incomplete_error(self) -> Exception:
        error: httpx2.RemoteProtocolError = self.http.RemoteProtocolError(
            "the application ended before its response was complete"
        )
        error.__cause__ = self._failure
        return error


def _to_scope(request: httpx2.Request) -> dict[str, Any]:
    url = request.url
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": url.scheme,
        "path": url.path,
        "raw_path": url.raw_path.split(b"?")[0],
        "query_string": url.query,
        "root_path": "",
        "headers": [(name.lower(), value) for name, value in request.headers.raw],
        "server": (url.host, url.port),
        "client": None,
    }
