"""What an engine did and when, as events and as a trace that chrome://tracing and Perfetto show."""

from __future__ import annotations

__all__ = ("EventKind", "TraceEvent", "chrome_trace")

import os
from collections.abc import Iterable, Iterator
from typing import Any, Literal, NamedTuple, get_args

EventKind = Literal[
    "submitted",
    "admitted",
    "prefill",
    "decode",
    "first token",
    "preempted",
    "ended",
    "step",
    "draft failed",
]

# The names of each kind's values, in order.
_VALUES: dict[EventKind, tuple[str, ...]] = {
    "submitted": ("prompt_tokens",),
    "admitted": ("cached_tokens",),
    "prefill": ("tokens",),
    "decode": ("tokens",),
    "first token": (),
    "preempted": ("lost_tokens",),
    "ended": ("finish_reason", "completion_tokens"),
    "step": ("rows", "prefill_tokens", "decode_tokens", "running", "waiting", "free_pages"),
    "draft failed": (),
}
_SPANS = ("prefill", "decode", "step")
_FINISH_REASONS = ("none", "stop", "length", "abort", "error", "timeout")
assert tuple(_VALUES) == get_args(EventKind)


class TraceEvent(NamedTuple):
    """One event; times are nanoseconds of a clock that only goes forward."""

    kind: EventKind
    sequence_id: int  #: -1 in a step, and where guessing failed for all.
    start_ns: int
    duration_ns: int
    values: tuple[int, ...]

    def fields(self) -> dict[str, int | str]:
        """The values with their names."""
        named: dict[str, int | str] = dict(zip(_VALUES[self.kind], self.values, strict=False))
        if self.kind == "ended":
            named["finish_reason"] = _FINISH_REASONS[self.values[0]]

        return named


def chrome_trace(events: Iterable[TraceEvent]) -> dict[str, Any]:
    """The events as a JSON object in the Trace Event Format; times are microseconds.

    Each sequence is a thread of the process: a slice for its life, with its share of each step
    inside, and instants. Thread 0 has the steps. The life of a sequence whose beginning was
    forgotten has no slice.
    """
    process = os.getpid()
    written: list[dict[str, Any]] = [
        _named("process_name", "aiomlc", process, 0),
        _named("thread_name", "engine", process, 0),
    ]
    known: set[int] = set()
    begun: set[int] = set()
    for event in events:
        thread = event.sequence_id + 1
        if thread not in known and thread > 0:
            known.add(thread)
            name = f"sequence {event.sequence_id}"
            written.append(_named("thread_name", name, process, thread))

        common = {"pid": process, "tid": thread, "ts": event.start_ns / 1000}
        written += ({**common, **part} for part in _parts(event, begun))

    return {"traceEvents": written, "displayTimeUnit": "ms"}


def _parts(event: TraceEvent, begun: set[int]) -> Iterator[dict[str, Any]]:
    fields = event.fields()
    if event.kind in _SPANS:
        yield {"name": event.kind, "ph": "X", "dur": event.duration_ns / 1000, "args": fields}
        return

    if event.kind == "submitted":
        begun.add(event.sequence_id)
        yield {"name": "sequence", "ph": "B", "args": fields}

    yield {"name": event.kind, "ph": "i", "s": "t", "args": fields}
    if event.kind == "ended" and event.sequence_id in begun:
        begun.remove(event.sequence_id)
        yield {"name": "sequence", "ph": "E", "args": fields}


def _named(kind: str, name: str, process: int, thread: int) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": process, "tid": thread, "args": {"name": name}}
