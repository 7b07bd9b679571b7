"""Tests of the trace of an engine, as Chrome trace events and in the log."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from aiomlc import AsyncMLCEngine, EngineConfig, EngineError, MLCEngine, SyncMLCEngine
from aiomlc.runtime.engine.trace import TraceEvent, chrome_trace
from aiomlc.testing import FakeCore, fake_loader

HELLO = [{"role": "user", "content": "Hello"}]
SEQUENCE_EVENTS = [
    TraceEvent("submitted", 7, 1_000, 0, (3,)),
    TraceEvent("admitted", 7, 2_000, 0, (0,)),
    TraceEvent("prefill", 7, 2_000, 500, (3,)),
    TraceEvent("first token", 7, 2_500, 0, ()),
    TraceEvent("step", -1, 2_000, 700, (1, 3, 0, 1, 0, 63)),
    TraceEvent("ended", 7, 2_600, 0, (1, 1)),
]


def events_of(trace: dict[str, Any], phase: str) -> list[tuple[str, int, float]]:
    """Return the name, thread and time of the events with a phase."""
    return [
        (event["name"], event["tid"], event["ts"])
        for event in trace["traceEvents"]
        if event["ph"] == phase
    ]


def test_sequence_is_a_slice_that_contains_its_events() -> None:
    trace = json.loads(json.dumps(chrome_trace(SEQUENCE_EVENTS)))

    assert events_of(trace, "B") == [("sequence", 8, 1.0)]
    assert events_of(trace, "X") == [("prefill", 8, 2.0), ("step", 0, 2.0)]
    assert events_of(trace, "E") == [("sequence", 8, 2.6)]
    assert [name for name, _, _ in events_of(trace, "i")] == [
        "submitted",
        "admitted",
        "first token",
        "ended",
    ]


def test_events_have_named_arguments() -> None:
    events = chrome_trace(SEQUENCE_EVENTS)["traceEvents"]
    arguments = {(event["name"], event["ph"]): event["args"] for event in events}

    assert arguments["sequence", "E"] == {"finish_reason": "stop", "completion_tokens": 1}
    assert arguments["step", "X"] == {
        "rows": 1,
        "prefill_tokens": 3,
        "decode_tokens": 0,
        "running": 1,
        "waiting": 0,
        "free_pages": 63,
    }


def test_rows_of_the_trace_are_named() -> None:
    events = chrome_trace(SEQUENCE_EVENTS)["traceEvents"]
    names = {event["tid"]: event["args"]["name"] for event in events if event["ph"] == "M"}

    assert names == {0: "engine", 8: "sequence 7"}


def test_end_without_a_start_is_dropped() -> None:
    assert events_of(chrome_trace(SEQUENCE_EVENTS[1:]), "E") == []


async def test_trace_of_an_engine_contains_its_requests() -> None:
    async with AsyncMLCEngine(loader=fake_loader(), enable_tracing=True) as engine:
        await engine.chat.completions.create(messages=HELLO)
        trace = engine.trace()

    names = [event["name"] for event in trace["traceEvents"] if event["ph"] != "M"]
    assert names[0] == "sequence"
    assert names.count("step") == engine.statistics().steps
    assert names.index("submitted") < names.index("step") < names.index("ended")


def test_sync_engine_has_a_trace() -> None:
    config = EngineConfig(enable_tracing=True)
    with MLCEngine(loader=fake_loader(), engine_config=config) as engine:
        engine.chat.completions.create(messages=HELLO)
        trace = engine.trace()

    assert "step" in [event["name"] for event in trace["traceEvents"]]


def test_step_engine_has_a_trace() -> None:
    with SyncMLCEngine(loader=fake_loader(), enable_tracing=True) as engine:
        engine.generate("Hello")
        trace = engine.trace()

    assert len(events_of(trace, "X")) == engine.statistics().steps


async def test_trace_without_tracing_is_an_error() -> None:
    core = FakeCore()
    async with AsyncMLCEngine(loader=fake_loader(core)) as engine:
        await engine.chat.completions.create(messages=HELLO)
        with pytest.raises(EngineError, match="enable_tracing"):
            engine.trace()

    assert core.read_trace(0) == (0, [])


async def test_each_step_is_logged_at_debug(caplog: pytest.LogCaptureFixture) -> None:
    core = FakeCore(["Hi!"])
    with caplog.at_level(logging.DEBUG, logger="aiomlc"):
        async with AsyncMLCEngine(loader=fake_loader(core)) as engine:
            await engine.chat.completions.create(messages=HELLO)

    lines = [record.getMessage() for record in caplog.records if record.name == "aiomlc"]
    assert len(lines) == core.statistics().steps
    assert lines[0].endswith(
        "rows=1 prefill_tokens=0 decode_tokens=1 running=1 waiting=0 free_pages=63"
    )


async def test_nothing_is_recorded_above_debug(caplog: pytest.LogCaptureFixture) -> None:
    core = FakeCore(["Hi!"])
    with caplog.at_level(logging.INFO, logger="aiomlc"):
        async with AsyncMLCEngine(loader=fake_loader(core)) as engine:
            await engine.chat.completions.create(messages=HELLO)

    assert core.read_trace(0) == (0, [])
    assert not caplog.records
