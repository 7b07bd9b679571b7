"""The events of an engine's life, and the streams of them."""

from __future__ import annotations

__all__ = ("EngineEvent", "EngineEventStream", "EngineEventType", "EventHub")

import time
from collections import deque
from dataclasses import dataclass
from typing import Literal, final
from weakref import WeakValueDictionary

from anyio import BusyResourceError, ClosedResourceError, EndOfStream, WouldBlock
from anyio.lowlevel import EventLoopToken, checkpoint, current_token
from anyio.streams.memory import MemoryObjectStreamStatistics

from aiomlc.errors import BadRequestError
from aiomlc.runtime.concurrency.event_loop import Waiter, run_soon, waiter_factory
from aiomlc.runtime.concurrency.receive_stream import ReceiveStream
from aiomlc.validation.json_values import short_repr

EngineEventType = Literal[
    "loading",
    "loaded",
    "load_failed",
    "overloaded",
    "draining",
    "drained",
    "resumed",
    "reset",
    "unloaded",
    "dead",
    "terminated",
]


@dataclass(frozen=True, slots=True)
class EngineEvent:
    """A change of an engine's state: `type` is the name of the new one.

    `overloaded` is the first request that is rejected because the queue is full, after one that
    was accepted. `terminated` is the last event.
    """

    type: EngineEventType
    time: float  #: Seconds since the epoch.
    model: str | None = None  #: The model, if it was loaded; its path, if the user named one.
    error: str | None = None  #: The reason of `load_failed`, `overloaded` and `dead`.


@final
class EngineEventStream(ReceiveStream[EngineEvent]):
    """The events of an engine from now on, for one task: async iterator and anyio stream.

    The engine never waits for a reader: if the buffer is full, the oldest event is dropped. The
    stream ends when the engine is terminated or garbage collected; it does not keep the engine
    alive.
    """

    def __init__(self, buffer_size: int) -> None:
        self.num_dropped: int = 0  #: Events that were dropped because the buffer was full.
        self._buffer: deque[EngineEvent] = deque()
        self._buffer_size = buffer_size
        self._has_ended = False
        self._is_reading = False
        self._token: EventLoopToken | None = None  # The event loop of the last read.
        self._arrival: Waiter | None = None  # While the reader waits.

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else "ended" if self._has_ended else "open"
        return f"<EngineEventStream {state}, {len(self._buffer)} events>"

    async def __anext__(self) -> EngineEvent:
        if self._is_reading:
            raise BusyResourceError("reading from")

        self._is_reading = True
        try:
            return await self._take()
        finally:
            self._is_reading = False

    async def _take(self) -> EngineEvent:
        await checkpoint()
        # Set before the buffer is checked, since another thread adds an event and then reads it.
        self._token = current_token()
        while not self._buffer:
            if self._has_ended or self._is_closed:
                raise StopAsyncIteration

            self._arrival = waiter_factory()()
            await self._arrival

        return self._buffer.popleft()

    def receive_nowait(self) -> EngineEvent:
        """Return the next event without waiting.

        Raises:
            anyio.WouldBlock: If there is none yet.
            anyio.EndOfStream: If there will be no more.
            anyio.ClosedResourceError: If the stream was closed.
        """
        if self._buffer:
            return self._buffer.popleft()

        if self._is_closed:
            raise ClosedResourceError

        raise EndOfStream if self._has_ended else WouldBlock

    def statistics(self) -> MemoryObjectStreamStatistics:
        """Return what anyio's memory object streams report; the open sender is the engine."""
        return MemoryObjectStreamStatistics(
            current_buffer_used=len(self._buffer),
            max_buffer_size=self._buffer_size,
            open_send_streams=int(not self._has_ended),
            open_receive_streams=int(not self._is_closed),
            tasks_waiting_send=0,
            tasks_waiting_receive=int(self._arrival is not None and not self._arrival.done()),
        )

    def close(self) -> None:
        """Close the stream and drop its events. Must be called in the reader's event loop."""
        self._is_closed = True
        self._buffer.clear()
        self._wake()

    def put(self, event: EngineEvent) -> None:
        """Add an event. Thread-safe; never blocks."""
        if self._is_closed:
            return

        self._buffer.append(event)
        if len(self._buffer) > self._buffer_size:
            self._buffer.popleft()
            self.num_dropped += 1

        self._notify()

    def end(self) -> None:
        """End the stream after its events. Thread-safe; never blocks."""
        self._has_ended = True
        self._notify()

    def _notify(self) -> None:
        if self._token is not None:
            run_soon(self._token, self._wake)

    def _wake(self) -> None:
        arrival, self._arrival = self._arrival, None
        if arrival is not None and not arrival.done():
            arrival.set_result(None)


@final
class EventHub:
    """The source of an engine's events. Thread-safe; no method blocks."""

    def __init__(self) -> None:
        self._streams: WeakValueDictionary[int, EngineEventStream] = WeakValueDictionary()
        self._is_closed = False

    def subscribe(self, buffer_size: int) -> EngineEventStream:
        """Return a stream of the events from now on, of which the last `buffer_size` are kept.

        Raises:
            BadRequestError: If `buffer_size` is not a positive integer.
        """
        if type(buffer_size) is not int or buffer_size < 1:
            raise BadRequestError(
                f"buffer_size must be a positive integer, got {short_repr(buffer_size)}",
                param="buffer_size",
            )

        stream = EngineEventStream(buffer_size)
        self._streams[id(stream)] = stream
        if self._is_closed:
            stream.end()

        return stream

    def emit(
        self, event_type: EngineEventType, *, model: str | None = None, error: object = None
    ) -> None:
        """Send an event to every stream; does nothing after `close`."""
        streams = self._open_streams()
        if self._is_closed or not streams:  # The interpreter may be ending, and `time` be gone.
            return

        text = None if error is None else str(error)
        event = EngineEvent(event_type, time.time(), model, text)
        for stream in streams:
            stream.put(event)

    def close(self) -> None:
        """Send `terminated` and end every stream. Idempotent."""
        self.emit("terminated")
        self._is_closed = True
        for stream in self._open_streams():
            stream.end()

    def _open_streams(self) -> list[EngineEventStream]:
        streams = (reference() for reference in self._streams.valuerefs())
        return [stream for stream in streams if stream is not None]
