"""uvicorn, with a limit on the time of a request's headers."""

from __future__ import annotations

__all__ = ("run_uvicorn",)

import logging
import socket
from collections.abc import Collection, Generator
from contextlib import contextmanager
from typing import Any, cast, final

import h11
import orjson
from anyio import Event, create_task_group
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from aiomlc.serve.http.http_errors import HTTPError
from aiomlc.serve.servers.settings import ServerSettings

# After draining, for connections whose clients do not read.
_CLOSE_SECONDS = 5
_HEADER_PIECE = 4096  # Bytes.


async def run_uvicorn(
    app: ASGIApp, bound: socket.socket, settings: ServerSettings, stop: Event
) -> None:
    """Serve an application on a bound socket, on asyncio, until `stop` is set."""

    @final
    class Protocol(_TimedProtocol):
        header_timeout = settings.header_timeout

    config = Config(
        _write_chunks_directly(app),
        http=Protocol,
        ws="none",
        lifespan="on",
        access_log=settings.access_log,
        h11_max_incomplete_event_size=settings.max_header_size,
        server_header=False,
        timeout_graceful_shutdown=_CLOSE_SECONDS,
    )
    logging.getLogger("uvicorn.access").addFilter(
        lambda record: not _is_quiet(record, settings.quiet_paths)
    )
    server = _Server(config)

    async def request_exit() -> None:
        await stop.wait()
        server.should_exit = True

    async with create_task_group() as tasks:
        tasks.start_soon(request_exit)
        await server.serve(sockets=[bound])
        tasks.cancel_scope.cancel()


def _is_quiet(record: logging.LogRecord, quiet_paths: Collection[str]) -> bool:
    """Return whether a record of the access log is about one of these paths."""
    path = record.args[2] if isinstance(record.args, tuple) and len(record.args) > 2 else None
    return isinstance(path, str) and path.partition("?")[0] in quiet_paths


def _write_chunks_directly(app: ASGIApp) -> ASGIApp:
    """Return an application whose streamed parts do not pass through h11, at half the cost."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        cycle = getattr(send, "__self__", None)
        is_streamed = scope["type"] == "http" and scope["method"] == "POST"
        if is_streamed and scope["http_version"] == "1.1" and type(cycle) is RequestResponseCycle:
            send = _ChunkSender(cycle)

        await app(scope, receive, send)

    return serve


@final
class _ChunkSender:
    """Sends the messages of a response to a POST of HTTP/1.1.

    h11 is needed for the beginning and the end. Between them, its state does not change, and if the
    length of the body is not given, each part is one chunk of the chunked transfer coding.
    """

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle
        self._is_chunked = False

    async def __call__(self, message: Message) -> None:
        cycle = self._cycle
        if self._is_chunked and message.get("more_body") and not cycle.response_complete:
            if cycle.flow.write_paused and not cycle.disconnected:
                await cycle.flow.drain()

            body: bytes = message.get("body", b"")
            if body and not cycle.disconnected:  # An empty chunk would be the end.
                cycle.transport.write(b"%x\r\n%b\r\n" % (len(body), body))

            return

        await cycle.send(cast(Any, message))
        if message["type"] == "http.response.start":
            names = {name.lower() for name, _ in message.get("headers", ())}
            self._is_chunked = message["status"] == 200 and b"content-length" not in names


@final
class _Server(Server):
    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Leave the signals to `serve`, which drains first."""
        yield


class _TimedProtocol(H11Protocol):
    """A connection that is closed if the headers of a request take too long.

    uvicorn limits the time between requests only. h11 is used, not httptools, because it limits the
    size of headers.
    """

    header_timeout: float
    _timer: Any = None  # While the server waits for the headers of a request.

    def connection_made(self, transport: Any) -> None:  # noqa: ANN401 - as the base class.
        """Wait for the first request."""
        super().connection_made(transport)
        self._start_timer()

    def data_received(self, data: bytes) -> None:
        """Start or stop the timer: headers may come in parts, and several requests at once.

        Headers come to h11 in small pieces, because it accepts any that are complete at once.
        """
        while data and not self._is_answering() and not self.transport.is_closing():
            super().data_received(data[:_HEADER_PIECE])
            data = data[_HEADER_PIECE:]

        if data and not self.transport.is_closing():
            super().data_received(data)

        if self._is_answering():
            self._stop_timer()
        else:
            self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        self._stop_timer()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP, or close the connection if a request was answered already."""
        self._refuse(b"400 Bad Request", HTTPError(400, msg, code="invalid_http"))

    def _is_answering(self) -> bool:
        # None before the first request, unlike its annotation.
        cycle = cast("RequestResponseCycle | None", self.cycle)
        return cycle is not None and not cycle.response_complete

    def _start_timer(self) -> None:
        if self._timer is None and not self.transport.is_closing():
            self._timer = self.loop.call_later(self.header_timeout, self._end_wait)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end_wait(self) -> None:
        self._timer = None
        if self._is_answering():
            return

        error = HTTPError(
            408, f"no request was received within {self.header_timeout:g} s", code="header_timeout"
        )
        self._refuse(b"408 Request Timeout", error)

    def _refuse(self, status: bytes, error: HTTPError) -> None:
        if self.transport.is_closing():
            return

        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.close()  # The bytes belong to a request that has its answer.
            return

        body = orjson.dumps(error.body())
        self.transport.write(
            b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
            b"connection: close\r\n\r\n%b" % (status, len(body), body)
        )
        self.transport.close()
