"""The client of a core, which serves concurrent requests to one model."""

from __future__ import annotations

__all__ = ("EngineClient",)

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Self, final

from anyio import AsyncContextManagerMixin, move_on_after
from anyio.lowlevel import checkpoint

from aiomlc.errors import AiomlcError, EngineDrainingError, EngineOverloadedError
from aiomlc.runtime.concurrency.interrupts import uninterruptible
from aiomlc.runtime.engine.core_protocol import Core, CoreStatistics
from aiomlc.runtime.engine.engine_task import EngineTask
from aiomlc.runtime.engine.events import EventHub
from aiomlc.runtime.engine.pinned_prefix import PinnedPrefix
from aiomlc.runtime.engine.prompt import Prompt
from aiomlc.runtime.engine.request_table import RequestTable
from aiomlc.runtime.engine.step_log import StepLog
from aiomlc.runtime.engine.stream import DeltaStream, Mailbox, StreamObserver
from aiomlc.runtime.engine.trace import TraceEvent
from aiomlc.sampling_params import SequenceOptions


@final
class EngineClient(AsyncContextManagerMixin):
    """The client of a core: opens streams and delivers the records to them while `task` runs.

    The task runs inside `async with`, or after `task.start()`. All methods must be called in the
    event loop of the task.
    """

    def __init__(
        self, core: Core, *, max_unread_tokens: int = 1024, events: EventHub | None = None
    ) -> None:
        """Create a client; a choice is paused at `max_unread_tokens` unread tokens."""
        self._core = core
        self._requests = RequestTable(core, max_unread_tokens=max_unread_tokens)
        self._step_log = StepLog(core)
        self._step_log.write()  # Enables the trace if steps are logged.
        self._is_draining = False
        self.wake_fd: int = core.wake_fd
        self._is_overloaded = False
        self.task: EngineTask = EngineTask(core, self, events)

    def __repr__(self) -> str:
        return f"<EngineClient {self.task.state}, {len(self._requests.request_ids)} requests>"

    @asynccontextmanager
    async def __asynccontextmanager__(self) -> AsyncIterator[Self]:
        async with self.task:
            yield self

    @uninterruptible
    def open_stream(
        self,
        prompt: Prompt,
        options: SequenceOptions,
        request_id: str | None = None,
        num_choices: int = 1,
        observer: StreamObserver | None = None,
    ) -> DeltaStream:
        """Submit a prompt and return the stream of its completions. Does not block.

        Choice `i` is the same as a single choice with the seed `seed + i`. The core prefills the
        prompt once; the other choices wait for that and fork the first.

        Raises:
            RequestError: If the request is rejected; no other request is affected.
            EngineError: If the engine is closed, dead, draining or overloaded.
        """
        self.task.check_serving()
        if self._is_draining:
            raise EngineDrainingError("the engine is draining: it accepts no new requests")

        try:
            stream = self._requests.open_stream(
                prompt, options, request_id, num_choices, observer, self.task.event_loop
            )
        except EngineOverloadedError as error:
            if not self._is_overloaded:
                self._is_overloaded = True
                self.task.events.emit("overloaded", error=error)
            raise

        self._is_overloaded = False
        return stream

    def empty_stream(self, request_id: str) -> DeltaStream:
        """Return a stream without choices, which has ended."""
        mailbox = Mailbox(0)
        mailbox.close()
        return DeltaStream(self._core, (), request_id, mailbox)

    @uninterruptible
    async def pin(self, prompt: Prompt) -> PinnedPrefix:
        """Prefill a prompt and pin it in the prefix cache; a cancelled call pins nothing.

        Raises:
            BadRequestError: If the prefix cache is disabled.
            RequestAbortedError: If the engine was reset in the meantime.
            EngineError: If the engine is closed, dead, or failed on this prompt.
        """
        # The only token is sampled after the prefill, and is not a part of the kept sequence.
        options = SequenceOptions(max_tokens=1, temperature=0.0, is_pinned=True)
        stream = self.open_stream(prompt, options)
        prefix = PinnedPrefix(self._core, stream.sequence_ids[0], len(prompt))
        try:
            async with stream:
                async for _ in stream:
                    pass
        except BaseException:
            prefix.release()  # The core may have pinned it already.
            raise

        return prefix

    def add_group(self, group_id: str, request_ids: Iterable[str]) -> None:
        """Let `abort` end live requests, such as those of several prompts, by one id."""
        self._requests.add_group(group_id, request_ids)

    def abort(self, request_id: str) -> None:
        """End a request, or a group, for its readers and in the core; ignore an unknown id."""
        if self._requests.request_ids:
            self.task.check_serving()

        self._requests.abort(request_id)

    async def drain(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109 - it ends requests.
        """Reject new requests until `resume`, and wait until the live ones have ended.

        If this call is cancelled, no request is aborted and new requests are still rejected; call
        it again to continue waiting.

        Args:
            timeout: The number of seconds after which the remaining requests are aborted, or None.

        Returns:
            Whether all requests ended before `timeout`.

        Raises:
            EngineError: If the engine is closed or dead, or ended before its requests.
        """
        self.task.check_serving()
        self._is_draining = True
        self.task.events.emit("draining")
        with move_on_after(timeout):
            await self._requests.wait_idle()

        if self.task.is_closed:
            raise self.task.closed_error()

        request_ids = self._requests.request_ids
        for request_id in request_ids:
            self.abort(request_id)

        self.task.events.emit("drained")
        await checkpoint()
        return not request_ids

    def deliver(self) -> bool:
        """Put some of the core's records into the mailboxes; return whether records are left."""
        try:
            has_more = self._requests.deliver()
        except KeyboardInterrupt:
            # Records may be lost, so no reader may wait for them.
            self._requests.cancel_all("a KeyboardInterrupt interrupted the delivery of tokens")
            raise

        self._step_log.write()
        return has_more

    def end(self, reason: Callable[[], AiomlcError]) -> None:
        """Fail every remaining request."""
        self._requests.end(reason)

    def resume(self) -> None:
        """Accept requests again."""
        if self._is_draining:
            self._is_draining = False
            self.task.events.emit("resumed")

    def reset(self) -> None:
        """End every request, empty the prefix cache and set the counters to 0."""
        self.task.check_serving()
        for request_id in self._requests.request_ids:
            self._requests.abort(request_id)

        self._core.reset()
        self.task.events.emit("reset")

    def statistics(self) -> CoreStatistics:
        """Return a snapshot of the core's counters."""
        return self._core.statistics()

    def trace(self) -> list[TraceEvent]:
        """Return the events in the core's trace buffer."""
        return self._core.read_trace(0)[1]
