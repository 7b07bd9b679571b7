"""`EventTraceRecorder`: a trace of a program's own events, with MLC LLM's interface."""

from __future__ import annotations

__all__ = ("EventTraceRecorder",)

import json
import threading
import time
from collections import Counter
from typing import final

from aiomlc.validation.arguments import check_str

_PHASES = {"start": "B", "finish": "E"}


@final
class EventTraceRecorder:
    """A recorder of events by request. Thread-safe.

    The events of an engine are returned by `trace()` of an engine with `enable_tracing`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, str]] = Counter()
        self._events: dict[str, list[tuple[str, int]]] = {}  # Name and microseconds, by request.

    def add_event(self, request_id: str, event: str) -> None:
        """Record an event of a request, now.

        Args:
            request_id: The request.
            event: "start X" and "finish X" for the begin and the end of X; any other text is the
                name of an event without a duration.

        Raises:
            BadRequestError: If an argument is not a string.
        """
        check_str("request_id", request_id)
        check_str("event", event)
        now = time.time_ns() // 1000
        with self._lock:
            number = self._counts[request_id, event]
            self._counts[request_id, event] += 1
            self._events.setdefault(request_id, []).append((f"{event} ({number})", now))

    def dump_json(self) -> str:
        """Return the events as JSON in the Trace Event Format, those of a request together."""
        with self._lock:
            events = [
                _trace_event(request_id, event, microseconds)
                for request_id, recorded in self._events.items()
                for event, microseconds in recorded
            ]
        return json.dumps(events)


def _trace_event(request_id: str, event: str, microseconds: int) -> dict[str, object]:
    word, _, rest = event.partition(" ")
    phase = _PHASES.get(word)
    name = event if phase is None else rest
    return {"name": name, "ph": phase or "i", "ts": microseconds, "pid": 1, "tid": request_id}
