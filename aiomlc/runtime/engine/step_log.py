"""Logging of an engine's steps at level DEBUG."""

from __future__ import annotations

__all__ = ("StepLog",)

import logging
import traceback
from typing import final

from aiomlc.runtime.engine.core_protocol import Core

_LOG = logging.getLogger("aiomlc")
_END_OF_TRACE = 2**62  # A number after that of every event.


@final
class StepLog:
    """A log of the steps that a core has recorded in its trace.

    The first `write` that finds level DEBUG enabled enables the trace. The core never calls Python:
    the steps are logged by the next `write`.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._next: int | None = None  # The number of the next event; None: not recording.

    def write(self) -> None:
        """Log the steps since the last call; print exceptions of logging handlers and filters."""
        try:
            self._write()
        except Exception:  # noqa: BLE001 - as `logging` does if a handler fails.
            traceback.print_exc()

    def _write(self) -> None:
        if not _LOG.isEnabledFor(logging.DEBUG):
            self._next = None
            return

        if self._next is None:
            self._core.enable_trace()
            self._next, _ = self._core.read_trace(_END_OF_TRACE)
            return

        first, events = self._core.read_trace(self._next)
        self._next = first + len(events)
        for event in events:
            if event.kind == "step":
                fields = " ".join(f"{name}={value}" for name, value in event.fields().items())
                _LOG.debug("step of %.3f ms: %s", event.duration_ns / 1e6, fields)
