"""The engine of an encoder or a speech model: the lifecycle of an `EngineClient`, without sequences
in a core."""

from __future__ import annotations

__all__ = ("MAX_OPEN_REQUESTS", "EncoderEngine", "OpenRequest")

import itertools
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Final, Protocol, Self, final

from anyio import AsyncContextManagerMixin, CancelScope, Event, move_on_after
from anyio.lowlevel import checkpoint

from aiomlc.errors import EngineDrainingError, EngineOverloadedError, RequestAbortedError
from aiomlc.runtime.engine.core_protocol import CoreStatistics
from aiomlc.runtime.engine.engine_task import EngineTask
from aiomlc.runtime.engine.events import EventHub
from aiomlc.runtime.engine.trace import TraceEvent
from aiomlc.runtime.images.sources import ImageSources

if TYPE_CHECKING:
    from aiomlc.runtime.embedding.embedder import Classifier, Embedder
    from aiomlc.runtime.speech.transcriber import Transcriber


#: Requests of several steps at the same time: an hour of audio takes about 100 MB.
MAX_OPEN_REQUESTS: Final = 32


class _Model(Protocol):
    """A model that runs in threads of its callers."""

    def close(self) -> None: ...


@final
class OpenRequest:
    """A request of several steps, between which its reader does other things.

    Used in one event loop. `drain` waits until it is closed.
    """

    def __init__(self, engine: EncoderEngine, request_id: str) -> None:
        self.request_id = request_id
        self._engine = engine
        self._thread = threading.get_ident()
        self._scope: CancelScope | None = None  # Of the current step.
        self._is_aborted = False

    @contextmanager
    def step(self) -> Iterator[None]:
        """Run one step of the request.

        Raises:
            RequestAbortedError: If `abort`, `drain` or `reset` ended the request.
        """
        if self._is_aborted:
            raise RequestAbortedError(self.request_id)

        self._scope = CancelScope()
        try:
            with self._scope:
                yield
        finally:
            self._scope = None

        if self._is_aborted:
            raise RequestAbortedError(self.request_id)

    @property
    def is_in_step(self) -> bool:
        """Whether a step of the request runs."""
        return self._scope is not None

    def cancel(self) -> None:
        """End the request: its current step, and those that are still to come."""
        self._is_aborted = True
        if self._scope is not None:
            self._scope.cancel()

    def close(self) -> None:
        """End the request for its reader. Idempotent; a finalizer may call it in any thread."""
        # Waiting tasks can only be woken in their own thread.
        self._engine.forget(self.request_id, wakes=threading.get_ident() == self._thread)


@final
class EncoderEngine(AsyncContextManagerMixin):
    """The engine of an encoder or a speech model: ties its lifetime to a task, and counts requests.

    Inputs go straight to the encoder's batches.

    Args:
        model: The model.
        events: Where its lifecycle is reported.
        image_sources: Where the images of requests may come from; None is `data:` URLs and bytes.
    """

    def __init__(
        self,
        model: Embedder | Classifier | Transcriber,
        events: EventHub | None = None,
        image_sources: ImageSources | None = None,
    ) -> None:
        self.model = model
        self.image_sources: ImageSources = image_sources or ImageSources()
        self.task: EngineTask = EngineTask(_EncoderLoop(model), events=events)
        self._is_draining = False
        self._running: dict[str, CancelScope | OpenRequest] = {}  # By request id.
        self._is_idle: Event | None = None  # Created by `drain`; set when no request runs.
        self._ids = (f"embeddings-{number}" for number in itertools.count(1))

    @asynccontextmanager
    async def __asynccontextmanager__(self) -> AsyncIterator[Self]:
        async with self.task:
            yield self

    @contextmanager
    def request(self) -> Iterator[None]:
        """Count a request, which `drain` waits for.

        Raises:
            EngineDrainingError: If the engine is draining.
            RequestAbortedError: If `drain` or `reset` ended the request.
        """
        self._check_draining()
        request_id = next(self._ids)
        scope = self._running[request_id] = CancelScope()
        try:
            with scope:
                yield
        finally:
            self.forget(request_id)

        if scope.cancelled_caught:
            raise RequestAbortedError(request_id)

    def open_request(self, request_id: str) -> OpenRequest:
        """Return a request of several steps, which its owner must close.

        Raises:
            EngineDrainingError: If the engine is draining.
            EngineOverloadedError: If too many are open, each of which holds its input.
        """
        self._check_draining()
        num_open = sum(isinstance(request, OpenRequest) for request in self._running.values())
        if num_open >= MAX_OPEN_REQUESTS:
            raise EngineOverloadedError(
                f"{num_open} requests are open, which is the limit: read or close one first"
            )

        request = OpenRequest(self, request_id)
        self._running[request_id] = request
        return request

    def forget(self, request_id: str, *, wakes: bool = True) -> None:
        """Count a request no more, and wake `drain` if it was the last one."""
        self._running.pop(request_id, None)
        if wakes and self._is_idle is not None and not self._running:
            self._is_idle.set()
            self._is_idle = None

    def _check_draining(self) -> None:
        if self._is_draining:
            raise EngineDrainingError("the engine is draining: it accepts no new requests")

    def abort(self, request_id: str) -> None:
        """End a request; an unknown id is ignored."""
        request = self._running.pop(request_id, None)
        if request is None:
            return

        request.cancel()
        if isinstance(request, OpenRequest) and not request.is_in_step:
            self.forget(request_id)  # Its reader may never come back.

    async def drain(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109 - like EngineClient
        """Reject new requests until `resume`, and wait until the running ones have ended.

        Args:
            timeout: The number of seconds after which the remaining requests are aborted, or None.

        Returns:
            Whether all requests ended before `timeout`.
        """
        self._is_draining = True
        self.task.events.emit("draining")
        with move_on_after(timeout):
            while self._running:
                self._is_idle = self._is_idle or Event()
                await self._is_idle.wait()

        is_idle = not self._running
        self.reset()
        self.task.events.emit("drained")
        await checkpoint()
        return is_idle

    def resume(self) -> None:
        """Accept requests again."""
        if self._is_draining:
            self._is_draining = False
            self.task.events.emit("resumed")

    def reset(self) -> None:
        """End every request."""
        for request_id in list(self._running):
            self.abort(request_id)

    def statistics(self) -> CoreStatistics:
        """Return the counters: computed tokens as prompt tokens, batches as steps, no pages."""
        batcher = self.model.batcher
        num_waiting = min(batcher.num_waiting, len(self._running))
        return CoreStatistics(
            num_running=len(self._running) - num_waiting,
            num_waiting=num_waiting,
            total_pages=0,
            free_pages=0,
            num_recycling=0,
            prompt_tokens=batcher.num_tokens,
            completion_tokens=0,
            steps=batcher.num_batches,
            prefix_cache_hits=0,
            cached_tokens=0,
            prefill_tokens=batcher.num_tokens,
            decode_tokens=0,
            prefill_seconds=batcher.seconds,
            decode_seconds=0.0,
        )

    def trace(self) -> list[TraceEvent]:
        """Return no events: nothing is traced."""
        return []


class _EncoderLoop:
    """A step loop that only waits for `stop`, since callers run the batches."""

    def __init__(self, model: _Model) -> None:
        self._model = model
        self._stopped = threading.Event()

    def run(self) -> None:
        """Wait until `stop` is called."""
        self._stopped.wait()

    def stop(self) -> None:
        """Make `run` return."""
        self._stopped.set()

    def close(self) -> None:
        """Release the encoder; a running batch is finished."""
        self._model.close()

    def release(self) -> None:
        """Do nothing: `close` has released the encoder."""
