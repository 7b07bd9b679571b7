"""A line in the log for each step, if somebody wants to read it."""

from __future__ import annotations

__all__ = ("StepLog",)

import logging
import traceback
from typing import final

from aiomlc.runtime.engine.core_protocol import Core

_LOG = logging.getLogger("aiomlc")
_NEVER = 2**62


@final
class StepLog:
    """Writes the steps that a core recorded, at the level DEBUG.

    The core records from the first `write` on that finds the level enabled, and never calls
    Python: the lines come when somebody writes.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._next: int | None = None  # The number of the next event; None: not recording.

    def write(self) -> None:
        """Log the steps since the last call. What the program's own logging raises is printed."""
        try:
            self._write()
        except Exception:  # noqa: BLE001 - as `logging` does where a handler fails.
            traceback.print_exc()

    def _write(self) -> None:
        if not _LOG.isEnabledFor(logging.DEBUG):
            self._next = None
            return

        if self._next is None:
            self._core.enable_trace()
            self._next, _ = self._core.read_trace(_NEVER)
            return

        first, events = self._core.read_trace(self._next)
        self._next = first + len(events)
        for event in events:
            if event.kind == "step":
                fields = " ".join(f"{name}={value}" for name, value in event.fields().items())
                _LOG.debug("step of %.3f ms: %s", event.duration_ns / 1e6, fields)
