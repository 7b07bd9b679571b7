"""What stands for the native core where an encoder is served: it has no sequences to step."""

from __future__ import annotations

__all__ = ("EncoderCore",)

import os
import threading
import weakref
from collections.abc import Sequence
from dataclasses import MISSING, fields
from typing import Any, final

from aiomlc.config import SequenceOptions
from aiomlc.errors import BadRequestError
from aiomlc.runtime.core_protocol import CoreStatistics, Record
from aiomlc.runtime.embedder import Embedder
from aiomlc.runtime.trace import TraceEvent


@final
class EncoderCore:
    """Ties an encoder's life to that of the engine it is served by.

    The engine opens, stops and closes it like any core; texts go to the `Embedder` itself.
    """

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._stopped = threading.Event()
        self.wake_fd, writer = os.pipe()  # Nothing is ever written: there are no records.
        weakref.finalize(self, _close_all, self.wake_fd, writer)

    def submit(self, prompt_ids: Sequence[int], options: SequenceOptions) -> int:
        """Refuse a prompt.

        Raises:
            BadRequestError: always: an encoder generates nothing.
        """
        raise BadRequestError("the model is an encoder: it has embeddings only", param="model")

    def cancel(self, sequence_id: int) -> None:
        """Do nothing: there are no sequences."""

    def pause(self, sequence_id: int) -> None:
        """Do nothing: there are no sequences."""

    def resume(self, sequence_id: int) -> None:
        """Do nothing: there are no sequences."""

    def run(self) -> None:
        """Wait until `stop` is called."""
        self._stopped.wait()

    def stop(self) -> None:
        """Make `run` return."""
        self._stopped.set()

    def close(self) -> None:
        """End the embedder; a batch that runs is finished."""
        self._embedder.close()

    def release(self) -> None:
        """Do nothing more than `close` did."""

    def step(self) -> bool:
        """False: there is never anything to do."""
        return False

    def drain(self) -> list[Record]:
        """Nothing."""
        return []

    def failure(self) -> str:
        """Empty: a failed batch is its callers' error."""
        return ""

    def statistics(self) -> CoreStatistics:
        """Zeros, as there is no KV cache."""
        required: dict[str, Any] = {
            item.name: 0
            for item in fields(CoreStatistics)
            if item.default is MISSING and item.default_factory is MISSING
        }
        return CoreStatistics(**required)

    def enable_trace(self) -> None:
        """Do nothing: nothing happens that would be recorded."""

    def read_trace(self, start: int) -> tuple[int, list[TraceEvent]]:
        """Nothing."""
        return start, []


def _close_all(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
