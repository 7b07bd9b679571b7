"""Responses of server-sent events."""

from __future__ import annotations

__all__ = ("send_events",)

from functools import partial
from time import monotonic
from typing import Any, final

from anyio import CancelScope, Event, move_on_after, sleep
from anyio.abc import TaskGroup
from starlette.types import Send

from aiomlc.api.streams.chunk_stream import ChunkStream
from aiomlc.errors import AiomlcError
from aiomlc.runtime.concurrency.worker_thread import run_in_worker
from aiomlc.serve.http.event_encoder import EventEncoder
from aiomlc.serve.http.http_errors import to_http_error
from aiomlc.serve.http.json_text import is_long
from aiomlc.serve.options import ServerOptions

_HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # nginx passes each event on at once.
)
_PING = b": ping\n\n"


async def send_events(
    chunks: ChunkStream[Any, Any],
    encoder: EventEncoder,
    *,
    send: Send,
    options: ServerOptions,
    tasks: TaskGroup,
) -> None:
    """Send the chunks of a request as events, and close their stream.

    The first chunk is sent alone, for clients that read one event from the first part of a body;
    then all that are ready are sent at once. While a client does not read, `send` waits, and the
    engine merges the request's tokens and then pauses it, so that a slow client costs a bounded
    amount of memory. In silence, comments keep the connection alive.

    Raises:
        AiomlcError: If the request fails before the response has begun.
    """
    response = _EventResponse(send)
    tasks.start_soon(response.watch, options, tasks.cancel_scope)
    encode = partial(_encode, encoder, chunks.has_logprobs)
    error_events = b""
    async with chunks:
        try:
            is_first = True
            while batch := await chunks.receive_batch():
                if is_first and len(batch) > 1:
                    await response.write(await encode(batch[:1]))
                    del batch[0]

                is_first = False
                await response.write(await encode(batch))
        except AiomlcError as error:
            if not await response.begin_error():
                raise

            error_events = encoder.encode_error(to_http_error(error))

    await response.end(error_events + encoder.last, options.write_timeout)


async def _encode(encoder: EventEncoder, has_logprobs: bool, chunks: list[Any]) -> bytes:
    """Return the events of chunks; those with many log-probabilities are encoded in a thread."""
    if has_logprobs and any(map(is_long, chunks)):
        return await run_in_worker(lambda _: encoder.encode(chunks))

    return encoder.encode(chunks)


@final
class _EventResponse:
    """A response whose parts come from two tasks: the one that writes, and the one that watches."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._has_started = False
        self._is_sending = False
        self._last_change = monotonic()  # Of `_is_sending`.
        self._ping_sent: Event | None = None  # While a ping is being sent.

    async def begin_error(self) -> bool:
        """Send no more pings; return whether the status was sent, so that an error is an event."""
        await self._wait_for_ping()
        self._is_sending = True
        return self._has_started

    async def write(self, data: bytes) -> None:
        """Send a part of the body."""
        if self._ping_sent is not None:
            await self._wait_for_ping()

        await self._send_part(data, has_more=True)

    async def end(self, data: bytes, seconds: float) -> None:
        """Send the last part of the body, for at most `seconds`.

        A server may report the disconnect, and close the connection, meanwhile. That must not be
        cancelled, or the connection stays open.
        """
        await self._wait_for_ping()
        with move_on_after(seconds, shield=True):
            await self._send_part(data, has_more=False)

    async def watch(self, options: ServerOptions, scope: CancelScope) -> None:
        """Send pings in silence; cancel `scope` when the client has not read for too long."""
        interval = min(options.ping_interval, options.write_timeout) / 4
        while True:
            await sleep(interval)
            seconds = monotonic() - self._last_change
            if self._is_sending:
                if seconds >= options.write_timeout:
                    scope.cancel()
            elif seconds >= options.ping_interval:
                await self._ping(options.write_timeout, scope)

    async def _ping(self, write_timeout: float, scope: CancelScope) -> None:
        self._ping_sent = Event()
        with move_on_after(write_timeout) as limit:
            await self._send_part(_PING, has_more=True)

        if limit.cancelled_caught:
            scope.cancel()

        self._ping_sent.set()
        self._ping_sent = None

    async def _wait_for_ping(self) -> None:
        while self._ping_sent is not None:
            await self._ping_sent.wait()

    async def _send_part(self, data: bytes, *, has_more: bool) -> None:
        self._is_sending = True
        self._last_change = monotonic()
        if not self._has_started:
            self._has_started = True
            await self._send(
                {"type": "http.response.start", "status": 200, "headers": list(_HEADERS)}
            )

        await self._send({"type": "http.response.body", "body": data, "more_body": has_more})
        self._is_sending = not has_more
        self._last_change = monotonic()
