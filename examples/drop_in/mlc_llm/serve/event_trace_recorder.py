"""`EventTraceRecorder`, and that of an engine, which has the engine's events, too."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from aiomlc import EventTraceRecorder as EventTraceRecorder


class EngineTraceRecorder:
    """The events of an engine, and those that the program adds."""

    def __init__(self, read: Callable[[], dict[str, Any]]) -> None:
        self._read = read
        self._own = EventTraceRecorder()
        self.add_event = self._own.add_event

    def dump_json(self) -> str:
        """Return all events as JSON in the Trace Event Format."""
        return json.dumps([*json.loads(self._own.dump_json()), *self._read()["traceEvents"]])
