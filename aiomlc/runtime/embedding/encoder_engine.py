"""The engine of an encoder: the lifecycle of an `EngineClient`, without generation requests."""

from __future__ import annotations

__all__ = ("EncoderEngine",)

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Self, final

from anyio import AsyncContextManagerMixin
from anyio.lowlevel import checkpoint

from aiomlc.runtime.engine.core_protocol import CoreStatistics
from aiomlc.runtime.engine.engine_task import EngineTask
from aiomlc.runtime.engine.events import EventHub
from aiomlc.runtime.engine.trace import TraceEvent

if TYPE_CHECKING:
    from aiomlc.runtime.embedding.embedder import Embedder


@final
class EncoderEngine(AsyncContextManagerMixin):
    """The engine of an encoder, which only ties the embedder's lifetime to a task.

    Inputs go straight to the embedder and have no request ids.
    """

    def __init__(self, embedder: Embedder, events: EventHub | None = None) -> None:
        self.embedder = embedder
        self.task: EngineTask = EngineTask(_EncoderLoop(embedder), events=events)

    @asynccontextmanager
    async def __asynccontextmanager__(self) -> AsyncIterator[Self]:
        async with self.task:
            yield self

    def abort(self, request_id: str) -> None:
        """Do nothing: inputs have no request ids."""

    async def drain(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109 - like EngineClient
        """Return True: no request is live."""
        await checkpoint()
        return True

    def resume(self) -> None:
        """Do nothing: an encoder does not drain."""

    def reset(self) -> None:
        """Do nothing: there is no state to reset."""

    def statistics(self) -> CoreStatistics:
        """Return the counters: embedded tokens as prompt tokens, batches as steps, no pages."""
        embedder = self.embedder
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

    def trace(self) -> list[TraceEvent]:
        """Return no events: nothing is traced."""
        return []


class _EncoderLoop:
    """A step loop that only waits for `stop`, since callers of the embedder run its batches."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._stopped = threading.Event()

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
