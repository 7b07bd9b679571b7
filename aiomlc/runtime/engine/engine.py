"""One task drives the native loop, one fans its output out; everyone else reads a stream."""

from __future__ import annotations

__all__ = ("Engine",)

import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from threading import Event as ThreadEvent
from threading import Lock, get_ident
from threading import enumerate as enumerate_threads
from typing import NamedTuple, Self, final

from anyio import (
    AsyncContextManagerMixin,
    CapacityLimiter,
    Event,
    create_task_group,
    move_on_after,
    to_thread,
    wait_readable,
)
from anyio.lowlevel import checkpoint

from aiomlc.errors import (
    AiomlcError,
    DeadlineExceededError,
    DuplicateRequestError,
    EngineClosedError,
    EngineDeadError,
    EngineDrainingError,
    LogitsProcessorError,
    RequestAbortedError,
    RequestFailedError,
)
from aiomlc.runtime.concurrency.event_loop import check_loop, running_loop, spawn_system_task
from aiomlc.runtime.concurrency.process_lifecycle import (
    FORKED_MESSAGE,
    at_exit,
    invalidate_after_fork,
)
from aiomlc.runtime.engine.core_protocol import Core, CoreStatistics, Record
from aiomlc.runtime.engine.logits_processors import LogitsProcessors
from aiomlc.runtime.engine.pinned_prefix import PinnedPrefix
from aiomlc.runtime.engine.step_log import StepLog
from aiomlc.runtime.engine.stream import DeltaStream, Mailbox, StreamObserver
from aiomlc.runtime.engine.trace import TraceEvent
from aiomlc.sampling_params import SequenceOptions

_EXIT_SECONDS = 2.0  # For an event loop that is blocked while the interpreter ends.
_ORPHANED = "the event loop or the scope that the engine ran in has ended: open another one"


class _Addressee(NamedTuple):
    """Whom a sequence's records go to."""

    label: str
    mailbox: Mailbox
    choice: int  #: Which of the request's choices.
    options: SequenceOptions


@final
class Engine(AsyncContextManagerMixin):
    """Serve concurrent requests from one native core.

    Use it as an async context manager, or call `start` and later `terminate`. Everything but
    `terminate` belongs to the event loop that serves.
    """

    def __init__(self, core: Core, *, max_unread_tokens: int = 1024) -> None:
        """`max_unread_tokens` of an answer make it pause until its reader has caught up."""
        self._core = core
        self._max_unread_tokens = max_unread_tokens
        # The reader's stream holds the mailbox, and no table holds the stream: so it can be
        # collected, and cancel its request, while it is unfinished.
        self._mailboxes: dict[int, _Addressee] = {}
        self._sequence_ids: dict[str, tuple[int, ...]] = {}  # One for each choice, by label.
        self._labels = (f"request-{number}" for number in itertools.count(1))
        self._closing = False
        self._closed = False
        self._end = "the engine was terminated"  # Unless something else ended it.
        self._death: EngineDeadError | None = None
        self._step_log = StepLog(core)
        self._running = Lock()  # Held while a thread is inside `core.run`.
        self._step_thread_id: int | None = None  # Which thread that is.
        self._loop: object = None
        self._thread_id: int | None = None
        self._system_task: object = None
        self._is_draining = False
        self._is_idle: Event | None = None  # Set when no request is left, for who waits for it.
        self._has_begun: Event | None = None
        self._has_ended: Event | None = None
        self._is_over = ThreadEvent()  # Nothing of it runs in the event loop.
        self._is_over.set()
        invalidate_after_fork(self)
        at_exit(self)

    def __repr__(self) -> str:
        state = "dead" if self._death else "closed" if self._closing else "open"
        return f"<Engine {state}, {len(self._mailboxes)} requests>"

    @asynccontextmanager
    async def __asynccontextmanager__(self) -> AsyncIterator[Self]:
        failure: BaseException | None = None
        try:
            async with create_task_group() as tasks:
                self._adopt_loop()
                tasks.start_soon(self._serve, name="aiomlc engine")
                try:
                    yield self
                finally:
                    self.stop()
        except BaseExceptionGroup as group:
            failure = self._only_cause(group)
            if failure is None:
                raise
        finally:
            self._finish()

        if failure is not None:
            raise failure

    def start(self) -> None:
        """Serve in a system task of the running event loop, until `terminate` or its end."""
        self._adopt_loop()
        self._system_task = spawn_system_task(self._serve_detached, name="aiomlc engine")

    async def wait_begun(self) -> None:
        """Wait until every task of the engine has begun.

        When the event loop ends before that, asyncio warns of a coroutine that nobody awaited.
        """
        if self._has_begun is not None:
            await self._has_begun.wait()

    def open_stream(
        self,
        prompt_ids: Sequence[int],
        options: SequenceOptions,
        request_id: str | None = None,
        num_choices: int = 1,
        watcher: StreamObserver | None = None,
    ) -> DeltaStream:
        """Submit a prompt and open the stream of its completions. Does not block.

        Choice `i` is what one choice with the seed `seed + i` would be. The core prefills the
        prompt once: the other choices wait for that and fork.

        Raises:
            RequestError: the request is refused; no other request notices.
            EngineError: the engine is closed or dead.
        """
        self._check_open()
        label = self._free_label() if request_id is None else request_id
        if self._is_live(label):
            raise DuplicateRequestError(label)

        mailbox = Mailbox(num_choices, watcher, max_unread=self._max_unread_tokens, loop=self._loop)
        sequence_ids = self._submit(prompt_ids, options, num_choices)
        for choice, sequence_id in enumerate(sequence_ids):
            self._mailboxes[sequence_id] = _Addressee(label, mailbox, choice, options)

        self._sequence_ids[label] = sequence_ids
        return DeltaStream(self._core, sequence_ids, label, mailbox)

    async def pin(self, prompt_ids: Sequence[int]) -> PinnedPrefix:
        """Compute a prompt and keep it in the prefix cache. A call that is cancelled keeps nothing.

        Raises:
            BadRequestError: the prefix cache is off.
            RequestAbortedError: the engine was reset in the meantime.
            EngineError: the engine is closed, dead, or failed on this prompt.
        """
        # The first token comes when the prompt is computed, and is not part of what is kept.
        options = SequenceOptions(max_tokens=1, temperature=0.0, is_pinned=True)
        stream = self.open_stream(prompt_ids, options)
        prefix = PinnedPrefix(self._core, stream.sequence_ids[0], len(prompt_ids))
        try:
            async with stream:
                async for _ in stream:
                    pass
        except BaseException:
            prefix.release()  # It may be kept already.
            raise

        return prefix

    def abort(self, request_id: str) -> None:
        """End a request for its reader and in the core; an unknown id does nothing."""
        if self._sequence_ids:
            self._check_loop()

        for sequence_id in self._sequence_ids.get(request_id, ()):
            if sequence_id in self._mailboxes:
                self._core.cancel(sequence_id)
                self._mailboxes[sequence_id].mailbox.fail(RequestAbortedError(request_id))
                self._forget(sequence_id)

    async def drain(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109 - it ends requests.
        """Refuse new requests until `resume`, and wait for the live ones to end.

        Returns whether all of them did; after `timeout` seconds the rest gets
        `RequestAbortedError`. A call that is cancelled ends none, and the engine goes on refusing;
        another call goes on waiting.

        Raises:
            EngineError: the engine is closed or dead, or was before they ended.
        """
        self._check_loop()
        self._is_draining = True
        with move_on_after(timeout):
            while self._mailboxes:
                self._is_idle = self._is_idle or Event()
                await self._is_idle.wait()

        if self._closed:
            raise self._reason_closed()

        labels = list(self._sequence_ids)
        for label in labels:
            self.abort(label)

        await checkpoint()
        return not labels

    def resume(self) -> None:
        """Take requests again."""
        self._is_draining = False

    def reset(self) -> None:
        """End every request, empty the prefix cache and set the counters to 0."""
        self._check_loop()
        for label in list(self._sequence_ids):
            self.abort(label)

        self._core.reset()

    async def aclose(self) -> None:
        """End as `terminate` does, and wait until the model is free."""
        self.stop()
        # The event of an event loop that is over is of no use in another one.
        if self._has_ended is not None and not self.is_over:
            await self._has_ended.wait()

    def statistics(self) -> CoreStatistics:
        """A snapshot of the core's counters."""
        return self._core.statistics()

    def trace(self) -> list[TraceEvent]:
        """The events that the core recorded and still keeps."""
        return self._core.read_trace(0)[1]

    def stop(self) -> None:
        """Refuse new requests and let the core's loop return. From any thread; never blocks."""
        self._closing = True
        self._core.stop()

    def terminate(self) -> None:
        """End every request and the core's loop, and free its pages. From any thread.

        Returns when the core's loop has: it blocks for at most the step that is running. Every
        waiting reader gets `EngineClosedError`. Calling it again does nothing. The core's own
        thread, in a logits processor, cannot wait for itself: its call returns at once.
        """
        self.stop()
        if self.is_stepping_here():
            return

        with self._running:
            pass

        if self._thread_id is None or self._thread_id == get_ident():
            self._finish()

    def abandon(self) -> None:
        """Be closed, in a process that has none of the engine's threads."""
        self._end = FORKED_MESSAGE
        self._closing = self._closed = True
        self._running = Lock()  # The other one may be held by a thread that is not here.
        self._is_over = ThreadEvent()
        self._is_over.set()

    def end_orphan(self) -> None:
        """Stop if the thread of the event loop has ended, or is this one, which is at its end."""
        here = get_ident()
        loops = {thread.ident for thread in enumerate_threads() if thread.ident != here}
        if not self.is_over and self._thread_id not in loops:
            self.stop()

    def at_exit(self) -> None:
        """End as `terminate` does, also what an event loop in a daemon thread does for it."""
        if self._is_over.is_set():
            return

        self.end_orphan()
        if not self._closing:
            self.terminate()
            self._is_over.wait(_EXIT_SECONDS)

    @property
    def is_over(self) -> bool:
        """Whether nothing of it runs in an event loop, now or not yet."""
        return self._is_over.is_set()

    def is_stepping_here(self) -> bool:
        """Whether the calling thread is the one inside the core's loop."""
        return self._step_thread_id == get_ident()

    async def _serve(self) -> None:
        try:
            async with create_task_group() as tasks:
                tasks.start_soon(self._run_steps, tasks.cancel_scope.cancel, name="aiomlc steps")
                try:
                    await self._deliver()
                finally:
                    if not self._closing:
                        self._end = _ORPHANED

                    # Here and not in the child: this body runs even if that one never began.
                    self.stop()
        except Exception as error:  # noqa: BLE001 - raised below, as what it means to the readers.
            self._die(error)
        finally:
            assert self._has_begun is not None, "made with the task"
            assert self._has_ended is not None, "made with the task"
            with ExitStack() as ends:
                ends.callback(self._is_over.set)
                ends.callback(self._has_begun.set)
                ends.callback(self._has_ended.set)
                ends.callback(self._core.release)  # Here: nobody waits on the wake fd any more.
                self._finish()

        if self._death is not None:
            raise self._death

    async def _serve_detached(self) -> None:
        # Nobody owns this task: its failure is raised by every stream and every later call.
        with suppress(EngineDeadError):
            await self._serve()

    async def _run_steps(self, end_delivery: Callable[[], None]) -> None:
        # Enters native code once and never takes the GIL until it is told to stop.
        assert self._has_begun is not None, "made with the task"
        self._has_begun.set()
        try:
            await to_thread.run_sync(self._run_core, limiter=CapacityLimiter(1))
        finally:
            end_delivery()

    def _run_core(self) -> None:
        with self._running:
            if self._closing:
                return

            self._step_thread_id = get_ident()
            try:
                self._core.run()
            except Exception as error:  # noqa: BLE001 - `_serve` raises it on the loop's side.
                self._die(error)
            finally:
                self._step_thread_id = None

    def _die(self, error: Exception) -> None:
        """Keep why the engine ends, the first reason there is."""
        if self._death is not None:
            return

        if isinstance(error, EngineDeadError):
            self._death = error
        else:
            self._death = EngineDeadError(f"the engine failed: {error}")
            self._death.__cause__ = error

    async def _deliver(self) -> None:
        while True:
            await wait_readable(self._core.wake_fd)
            self._deliver_now()

    def _deliver_now(self) -> None:
        self._fan_out(self._core.drain())
        self._step_log.write()

    def _fan_out(self, records: list[Record]) -> None:
        for record in records:
            known = self._mailboxes.get(record.sequence_id)
            if known is None:
                continue

            if record.finish_reason is None:  # Most are, so this way is short.
                if not known.mailbox.ended and known.mailbox.put(record, known.choice):
                    self._core.pause(record.sequence_id)
                continue

            if record.finish_reason == "error" and self._core.failure():
                continue  # The engine's death, which `_finish` tells every reader.

            self._forget(record.sequence_id)
            if not known.mailbox.ended:
                self._hand_over(record, known)

    def _hand_over(self, record: Record, addressee: _Addressee) -> None:
        """Give a sequence's last record to its reader."""
        mailbox = addressee.mailbox
        if record.finish_reason == "error":
            self._fail(mailbox, _failure(addressee, record.error or "the request failed"))
        elif record.finish_reason == "abort":
            self._fail(mailbox, RequestAbortedError(addressee.label))
        elif record.finish_reason == "timeout":
            mailbox.put(record._replace(finish_reason=None, error=None), addressee.choice)
            self._fail(mailbox, _timeout(addressee, record.error or "timeout"))
        else:
            mailbox.put(record, addressee.choice)

    def _finish(self) -> None:
        """Free the core and end every stream; the order lets a finished answer still arrive."""
        if self._closed:
            return

        self._closed = True
        self._closing = True
        with self._running:
            for end in (self._deliver_now, self._core.close):
                try:
                    end()
                except Exception as error:  # noqa: BLE001 - every reader is told.
                    self._die(error)

        for addressee in list(self._mailboxes.values()):
            addressee.mailbox.fail(self._reason_closed())

        self._mailboxes.clear()
        self._sequence_ids.clear()
        self._tell_idle()

    def _tell_idle(self) -> None:
        if self._is_idle is not None and not self._mailboxes:
            self._is_idle.set()
            self._is_idle = None

    def _submit(
        self, prompt_ids: Sequence[int], options: SequenceOptions, num_choices: int
    ) -> tuple[int, ...]:
        sequence_ids: list[int] = []
        try:
            for choice in range(num_choices):
                sequence_id = self._core.submit(prompt_ids, options.of_choice(choice))
                sequence_ids.append(sequence_id)
        except AiomlcError:
            for sequence_id in sequence_ids:
                self._core.cancel(sequence_id)
            raise

        return tuple(sequence_ids)

    def _fail(self, mailbox: Mailbox, error: AiomlcError) -> None:
        mailbox.fail(error)
        for sequence_id, addressee in self._mailboxes.items():
            if addressee.mailbox is mailbox:  # A choice that has nobody to read it now.
                self._core.cancel(sequence_id)

    def _forget(self, sequence_id: int) -> None:
        label = self._mailboxes.pop(sequence_id).label
        # A reader that left early frees its label at once, so a later request may own it now.
        siblings = self._sequence_ids.get(label, ())
        if sequence_id in siblings and not self._mailboxes.keys() & siblings:
            del self._sequence_ids[label]

        self._tell_idle()

    def _free_label(self) -> str:
        return next(label for label in self._labels if not self._is_live(label))

    def _is_live(self, label: str) -> bool:
        known = self._mailboxes.keys() & self._sequence_ids.get(label, ())
        return any(not self._mailboxes[sequence_id].mailbox.ended for sequence_id in known)

    def _adopt_loop(self) -> None:
        if self._closing:
            raise self._reason_closed()

        self._step_log.write()
        self._has_begun = Event()
        self._has_ended = Event()
        self._is_over.clear()
        self._loop = running_loop()
        self._thread_id = get_ident()

    def _check_open(self) -> None:
        self._check_loop()
        if self._is_draining:
            raise EngineDrainingError("the engine is draining: it takes no more requests for now")

    def _check_loop(self) -> None:
        if self._closing or self._loop is None:
            raise self._reason_closed()

        check_loop(self._loop)

    def _reason_closed(self) -> AiomlcError:
        if self._death is None:
            return EngineClosedError(self._end)

        # One instance per reader: an exception that several tasks raise mixes their tracebacks.
        error = EngineDeadError(str(self._death))
        error.__cause__ = self._death
        return error

    def _only_cause(self, group: BaseExceptionGroup) -> BaseException | None:
        """The one exception of the group that is not a consequence of the engine's death."""
        causes = [error for error in group.exceptions if not self._follows_death(error)]
        return causes[0] if len(causes) == 1 else None

    def _follows_death(self, error: BaseException) -> bool:
        if isinstance(error, BaseExceptionGroup):
            return all(self._follows_death(inner) for inner in error.exceptions)

        return self._death is not None and error.__cause__ is self._death


def _failure(addressee: _Addressee, reason: str) -> AiomlcError:
    processors = addressee.options.logits_processors
    cause = processors.take_failure() if isinstance(processors, LogitsProcessors) else None
    if cause is None:
        return RequestFailedError(reason)

    error = LogitsProcessorError(addressee.label)
    error.__cause__ = cause
    return error


def _timeout(addressee: _Addressee, limit: str) -> DeadlineExceededError:
    seconds = getattr(addressee.options, limit)
    return DeadlineExceededError(addressee.label, limit=limit, seconds=seconds)
