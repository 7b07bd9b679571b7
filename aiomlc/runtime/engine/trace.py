"""Trace events of an engine, and their conversion to the Trace Event Format.

The format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

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
    """One event. Times are in nanoseconds, from a monotonic clock."""

    kind: EventKind
    sequence_id: int  #: -1 for a step, and if drafting failed for all sequences.
    start_ns: int
    duration_ns: int
    values: tuple[int, ...]

    def fields(self) -> dict[str, int | str]:
        """Return the values by name."""
        named: dict[str, int | str] = dict(zip(_VALUES[self.kind], self.values, strict=False))
        if self.kind == "ended":
            named["finish_reason"] = _FINISH_REASONS[self.values[0]]

        return named


def chrome_trace(events: Iterable[TraceEvent]) -> dict[str, Any]:
    """Return a JSON object in the Trace Event Format; its times are in microseconds.

    Thread 0 has a slice for each step. Each sequence is a thread with instant events, a slice for
    its lifetime, and a slice for each of its prefills and decodes. The lifetime has no slice if
    the event of the submission was dropped.
    """
    process = os.getpid()
    entries: list[dict[str, Any]] = [
        _metadata("process_name", "aiomlc", process, 0),
        _metadata("thread_name", "engine", process, 0),
    ]
    named_threads: set[int] = set()
    submitted: set[int] = set()
    for event in events:
        thread = event.sequence_id + 1
        if thread not in named_threads and thread > 0:
            named_threads.add(thread)
            name = f"sequence {event.sequence_id}"
            entries.append(_metadata("thread_name", name, process, thread))

        common = {"pid": process, "tid": thread, "ts": event.start_ns / 1000}
        entries += ({**common, **fields} for fields in _entries(event, submitted))

    return {"traceEvents": entries, "displayTimeUnit": "ms"}


def _entries(event: TraceEvent, submitted: set[int]) -> Iterator[dict[str, Any]]:
    """Yield the entries of one event; `submitted` contains the sequences with an open lifetime."""
    fields = event.fields()
    if event.kind in _SPANS:
        yield {"name": event.kind, "ph": "X", "dur": event.duration_ns / 1000, "args": fields}
        return

    if event.kind == "submitted":
        submitted.add(event.sequence_id)
        yield {"name": "sequence", "ph": "B", "args": fields}

    yield {"name": event.kind, "ph": "i", "s": "t", "args": fields}
    if event.kind == "ended" and event.sequence_id in submitted:
        submitted.remove(event.sequence_id)
        yield {"name": "sequence", "ph": "E", "args": fields}


def _metadata(kind: str, name: str, process: int, thread: int) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": process, "tid": thread, "args": {"name": name}}
