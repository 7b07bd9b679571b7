"""A core without sequences, which ties an encoder to an engine."""

from __future__ import annotations

__all__ = ("EncoderCore",)

import os
import threading
import weakref
from collections.abc import Sequence
from typing import final

from aiomlc.errors import BadRequestError
from aiomlc.runtime.embedding.embedder import Embedder
from aiomlc.runtime.engine.core_protocol import CoreStatistics, Record
from aiomlc.runtime.engine.trace import TraceEvent
from aiomlc.sampling_params import SequenceOptions


@final
class EncoderCore:
    """A core that ends its encoder together with the engine.

    The engine opens, stops and closes it like any core. Inputs go to the `Embedder` directly.
    """

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._stopped = threading.Event()
        self.wake_fd: int
        self.wake_fd, writer = os.pipe()  # Never written, since there are no records.
        weakref.finalize(self, _close_all, self.wake_fd, writer)

    def submit(self, prompt_ids: Sequence[int], options: SequenceOptions) -> int:
        """Reject a prompt.

        Raises:
            BadRequestError: Always, since an encoder does not generate text.
        """
        raise BadRequestError(
            "the model is an encoder, which only supports embeddings", param="model"
        )

    def cancel(self, sequence_id: int) -> None:
        """Do nothing: there are no sequences."""

    def pause(self, sequence_id: int) -> None:
        """Do nothing: there are no sequences."""

    def resume(self, sequence_id: int) -> None:
        """Do nothing: there are no sequences."""

    def unpin(self, sequence_id: int) -> None:
        """Do nothing: there are no sequences."""

    def reset(self) -> None:
        """Do nothing: there is no state to reset."""

    def run(self) -> None:
        """Wait until `stop` is called."""
        self._stopped.wait()

    def stop(self) -> None:
        """Make `run` return."""
        self._stopped.set()

    def close(self) -> None:
        """Close the embedder; a running batch is finished."""
        self._embedder.close()

    def release(self) -> None:
        """Do nothing: `close` has released the encoder."""

    def step(self) -> bool:
        """Return False: there are no sequences to step."""
        return False

    def drain(self) -> list[Record]:
        """Return no records."""
        return []

    def failure(self) -> str:
        """Return an empty string: a failed batch is reported to its callers only."""
        return ""

    def statistics(self) -> CoreStatistics:
        """Return the counters: embedded tokens as prompt tokens, batches as steps, no pages."""
        embedder = self._embedder
        return CoreStatistics(
            num_running=0,
            num_waiting=embedder.num_waiting,
            total_pages=0,
            free_pages=0,
            num_recycling=0,
            prompt_tokens=embedder.num_tokens,
            completion_tokens=0,
            steps=embedder.num_batches,
            prefix_cache_hits=0,
            cached_tokens=0,
            prefill_tokens=embedder.num_tokens,
            decode_tokens=0,
            prefill_seconds=embedder.seconds,
            decode_seconds=0.0,
        )

    def enable_trace(self) -> None:
        """Do nothing: there are no sequences."""

    def read_trace(self, start: int) -> tuple[int, list[TraceEvent]]:
        """Return no events."""
        return 0, []


def _close_all(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
