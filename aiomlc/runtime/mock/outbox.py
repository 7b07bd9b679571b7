"""The outbox and the trace of the fake core."""

from __future__ import annotations

__all__ = ("RecordOutbox", "StepTrace")

import os
import weakref
from typing import final

from aiomlc.runtime.engine.core_protocol import Record
from aiomlc.runtime.engine.trace import EventKind, TraceEvent


@final
class RecordOutbox:
    """Records that wait for delivery, and the file descriptor that signals them."""

    def __init__(self) -> None:
        self.wake_fd: int  #: Readable while the outbox is not empty.
        self.wake_fd, self._writer = os.pipe()
        self._records: list[Record] = []
        weakref.finalize(self, _close_all, self.wake_fd, self._writer)

    def post(self, records: list[Record]) -> None:
        """Append records and make the descriptor readable."""
        if not self._records:
            os.write(self._writer, b"!")

        self._records += records

    def drain(self) -> list[Record]:
        """Remove and return all records."""
        if self._records:
            os.read(self.wake_fd, 1)

        records, self._records = self._records, []
        return records


@final
class StepTrace:
    """Recorded events, whose clock counts events in steps of 1000."""

    def __init__(self) -> None:
        self._events: list[TraceEvent] | None = None  # None while tracing is disabled.

    def enable(self) -> None:
        """Record events from now on."""
        self._events = self._events or []

    def record(self, kind: EventKind, sequence_id: int, *values: int) -> None:
        """Append an event if tracing is enabled."""
        if self._events is not None:
            time = 1000 * len(self._events)
            self._events.append(TraceEvent(kind, sequence_id, time, 0, values))

    def read(self, start: int) -> tuple[int, list[TraceEvent]]:
        """Return the events from number `start`, and the number of the first of them."""
        events = self._events or []
        return min(start, len(events)), events[start:]


def _close_all(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
