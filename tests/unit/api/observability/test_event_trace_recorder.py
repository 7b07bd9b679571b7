"""The trace of a program's own events."""

from __future__ import annotations

import json

import pytest

from aiomlc import BadRequestError, EventTraceRecorder


def test_events_are_recorded_by_request_with_their_phase() -> None:
    recorder = EventTraceRecorder()
    for request_id, event in (
        ("x", "start decode"),
        ("y", "add request"),
        ("x", "finish decode"),
        ("x", "start decode"),
    ):
        recorder.add_event(request_id, event)

    events = json.loads(recorder.dump_json())

    assert [(event["tid"], event["name"], event["ph"]) for event in events] == [
        ("x", "decode (0)", "B"),
        ("x", "decode (0)", "E"),
        ("x", "decode (1)", "B"),
        ("y", "add request (0)", "i"),
    ]
    times = [event["ts"] for event in events[:3]]
    assert times == sorted(times)
    assert {event["pid"] for event in events} == {1}


def test_a_trace_without_events_is_an_empty_list() -> None:
    assert json.loads(EventTraceRecorder().dump_json()) == []


def test_events_must_be_strings() -> None:
    with pytest.raises(BadRequestError, match="event"):
        EventTraceRecorder().add_event("x", 1)  # type: ignore[arg-type]
