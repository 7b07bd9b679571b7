"""The stream of one request's deltas, and the mailbox between delivery and its reader."""

from __future__ import annotations

__all__ = ("Delta", "DeltaStream", "Mailbox", "StreamObserver")

import logging
import sys
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import NamedTuple, Protocol, final

from anyio import BusyResourceError
from anyio.lowlevel import checkpoint
from anyio.streams.memory import MemoryObjectStreamStatistics

from aiomlc.errors import AiomlcError
from aiomlc.runtime.concurrency.event_loop import Waiter, check_loop, waiter_factory
from aiomlc.runtime.concurrency.receive_stream import ReceiveStream
from aiomlc.runtime.concurrency.turns import Turns
from aiomlc.runtime.engine.core_protocol import Core, Record, TokenLogprob
from aiomlc.runtime.engine.packed_logprobs import join_logprobs
from aiomlc.runtime.engine.statistics import RequestTiming

_LOG = logging.getLogger("aiomlc")
_TOKENS_PER_MERGED_DELTA = 64
# With 20 alternatives each, so many take a reader up to some milliseconds.
_LOGPROBS_PER_DELTA = 32


class Delta(NamedTuple):
    """The output of one choice since the previous delta; the counts are totals of the choice."""

    text: str
    #: As many as `completion_tokens` counts: also a stop token, and those of a stop string.
    token_ids: tuple[int, ...]
    finish_reason: str | None  #: "stop" or "length" in the last delta, else None.
    prompt_tokens: int
    completion_tokens: int
    logprobs: Sequence[TokenLogprob]  #: One for each of `token_ids`, if requested.
    cached_tokens: int  #: Prompt tokens from the prefix cache.
    choice: int = 0  #: The index of the choice.
    timing: RequestTiming | None = None  #: In the last delta, if the core provides it.
    #: One for each prompt token but the first, if requested; in the first delta of choice 0.
    prompt_logprobs: Sequence[TokenLogprob] = ()


class StreamObserver(Protocol):
    """An observer of a request in addition to its reader, called in the event loop's thread."""

    def on_record(self, record: Record, choice: int) -> None:
        """Handle a record."""
        ...

    def on_end(self, error: AiomlcError | None) -> None:
        """Handle the end of the request: its last record, a closed stream or an error.

        Called once.
        """
        ...


@final
class Mailbox:
    """The records that one reader has not taken yet, by choice.

    The unread records of a choice are merged into one delta, so that delivery never waits for a
    slow reader. A choice with too many unread tokens is paused until its reader has caught up.

    The mailbox ends when every choice has ended, or when it is failed or closed. It uses a waiter
    and not a memory object stream: a read that is cancelled while it is being woken loses nothing,
    and the delivery of a delta takes a fraction of the time.
    """

    __slots__ = (
        "_arrival",
        "_error",
        "_is_due",
        "_loop",
        "_make_waiter",
        "_max_unread",
        "_num_open",
        "_observer",
        "_paused",
        "_turns",
        "_unread",
        "_unstripped",
        "_wake_at",
        "ended",
    )

    def __init__(
        self,
        num_choices: int = 1,
        observer: StreamObserver | None = None,
        *,
        max_unread: int = sys.maxsize,
        strips_leading_space: bool = False,
        loop: object = None,
        turns: Turns | None = None,
    ) -> None:
        """Create a mailbox.

        Args:
            max_unread: The number of unread tokens at which a choice is paused.
            strips_leading_space: Whether the text of each choice starts without a space.
            loop: The event loop that fills the mailbox, in which it must be read; None for any.
            turns: Limits what many readers do in one turn of the event loop, or None.
        """
        self._turns = turns
        self._loop = loop
        self._max_unread = max_unread
        self._paused: set[int] = set()  # Paused choices.
        # The choices without text so far, whose text is to start without a space.
        self._unstripped: set[int] = set(range(num_choices)) if strips_leading_space else set()
        self._unread: dict[int, list[Record]] = {}  # By choice; the first has waited longest.
        self._wake_at = 1
        self._is_due = False  # Whether a choice has at least `_wake_at` unread tokens.
        self._num_open = num_choices
        self._error: AiomlcError | None = None
        self._arrival: Waiter | None = None  # While the reader waits.
        self._make_waiter: Callable[[], Waiter] | None = None
        self._observer = observer
        self.ended: bool = False

    def put(self, record: Record, choice: int = 0) -> bool:
        """Add a record; the last record of a choice has a finish reason.

        Returns:
            Whether the choice now has too many unread tokens and must be paused.
        """
        must_pause = False
        num_unread = 1
        earlier = self._unread.get(choice)
        if earlier is None:
            self._unread[choice] = [record]
        else:
            earlier.append(record)
            num_unread = record.completion_tokens - earlier[0].completion_tokens + 1
            if num_unread >= self._max_unread and choice not in self._paused:
                self._paused.add(choice)
                must_pause = True

        if self._observer is not None:
            self._notify(partial(self._observer.on_record, record, choice))

        if record.finish_reason is not None:
            self._num_open -= 1
            if self._num_open == 0:
                self._end(None)

        if num_unread >= self._wake_at:
            self._is_due = True

        if self._is_due or self.ended:
            self._wake()

        return must_pause and record.finish_reason is None

    def merge(self) -> None:
        """Wake the reader only for many tokens of a choice, or at the end."""
        self._wake_at = min(_TOKENS_PER_MERGED_DELTA, self._max_unread)

    def catch_up(self, choice: int) -> bool:
        """Return whether a choice was paused and must be resumed: all its records were read."""
        if choice not in self._paused or choice in self._unread:
            return False

        self._paused.discard(choice)
        return not self.ended

    def fail(self, error: AiomlcError) -> None:
        """End with an error, which is raised after the unread records have been read.

        A merging reader, which cannot use a part of the output, gets the error at once.
        """
        if not self.ended:
            if self._wake_at > 1:
                self._unread.clear()

            self._error = error
            self._end(error)
            self._wake()

    def close(self) -> None:
        """End, and drop the unread records."""
        self._unread.clear()
        self._error = None
        if not self.ended:
            self._end(None)

        self._wake()

    def statistics(self, num_choices: int, *, is_closed: bool) -> MemoryObjectStreamStatistics:
        """Return what anyio's memory object streams report; the items are merged deltas."""
        return MemoryObjectStreamStatistics(
            current_buffer_used=len(self._unread),
            max_buffer_size=num_choices,
            open_send_streams=int(not self.ended),
            open_receive_streams=int(not is_closed),
            tasks_waiting_send=len(self._paused),
            tasks_waiting_receive=int(self._arrival is not None and not self._arrival.done()),
        )

    async def take(self) -> Delta | None:
        """Wait for the next delta; None means the end.

        Raises:
            AiomlcError: If the mailbox was failed. Raised once; later calls return None.
            EngineClosedError: If the running event loop is not the one that fills the mailbox.
        """
        if self._is_due or self.ended:
            await checkpoint()

        while not self._is_due and not self.ended:
            if self._make_waiter is None:
                if self._loop is not None:
                    check_loop(self._loop)

                self._make_waiter = waiter_factory()

            self._arrival = self._make_waiter()
            await self._arrival

        if self._turns is not None and self._turns.are_over():
            await self._turns.wait()

        return self.take_nowait()

    def take_nowait(self) -> Delta | None:
        """Return the next delta; None if there are no unread records.

        Raises:
            AiomlcError: If the mailbox was failed. Raised once; later calls return None.
        """
        if not self._unread:
            error, self._error = self._error, None
            if error is not None:
                raise error

            return None

        if len(self._unread) == 1:
            choice, records = self._unread.popitem()
        else:
            choice = next(iter(self._unread))
            records = self._unread.pop(choice)

        if len(records) > 1 and records[-1].logprobs:
            number = _num_first(records, _LOGPROBS_PER_DELTA)
            if number < len(records):
                self._unread[choice] = records[number:]  # After the other choices.
                records = records[:number]

        self._is_due = bool(self._unread)
        last = records[-1]
        text, token_ids, logprobs = last.text, last.token_ids, last.logprobs
        if len(records) > 1:
            text = "".join(record.text for record in records)
            token_ids = tuple(chain.from_iterable(record.token_ids for record in records))
            logprobs = join_logprobs([record.logprobs for record in records])

        if self._unstripped and text and choice in self._unstripped:
            self._unstripped.discard(choice)
            text = text.removeprefix(" ")

        return Delta(
            text,
            token_ids,
            last.finish_reason,
            last.prompt_tokens,
            last.completion_tokens,
            logprobs,
            last.cached_tokens,
            choice,
            last.timing,
            records[0].prompt_logprobs,
        )

    def _end(self, error: AiomlcError | None) -> None:
        self.ended = True
        if self._observer is not None:
            self._notify(partial(self._observer.on_end, error))

    def _notify(self, call: Callable[[], None]) -> None:
        # A failure of the observer must not affect this reader or other requests.
        try:
            call()
        except Exception:  # noqa: BLE001 - any exception of the observer is logged.
            self._observer = None
            _LOG.exception("the observer of a request failed and will not be called again")

    def _wake(self) -> None:
        arrival, self._arrival = self._arrival, None
        if arrival is not None and not arrival.done():
            arrival.set_result(None)


def _num_first(records: Sequence[Record], max_tokens: int) -> int:
    """Return how many of the first records have at most `max_tokens` tokens, at least 1."""
    num_tokens = 0
    for number, record in enumerate(records):
        num_tokens += len(record.token_ids)
        if num_tokens > max_tokens and number > 0:
            return number

    return len(records)


@final
class DeltaStream(ReceiveStream[Delta]):
    """The deltas of one request, for one task.

    The deltas of a choice are in order; those of several choices are interleaved. Closing the
    stream cancels the request unless it has finished, and so does garbage collection.

    Raises:
        AiomlcError: While iterating, if the request was aborted or failed.
        anyio.BusyResourceError: While iterating, if another task is waiting for a delta.
    """

    def __init__(
        self, core: Core, sequence_ids: Sequence[int], request_id: str, mailbox: Mailbox
    ) -> None:
        self.request_id = request_id
        self.sequence_ids: tuple[int, ...] = tuple(sequence_ids)  #: One per choice, in the core.
        self._core = core
        self._mailbox = mailbox
        self._reading = False

    @property
    def num_choices(self) -> int:
        """The number of choices."""
        return len(self.sequence_ids)

    def __repr__(self) -> str:
        state = "ended" if self._mailbox.ended else "open"
        return f"<DeltaStream {self.request_id!r} {state}>"

    def merge_deltas(self) -> None:
        """Let many tokens arrive as one delta, for a reader that needs only the whole output.

        A reader that is woken for each token costs the event loop more than what it reads.
        """
        self._mailbox.merge()

    async def __anext__(self) -> Delta:
        if self._reading:
            raise BusyResourceError("reading from")

        self._reading = True
        try:
            delta = await self._mailbox.take()
        finally:
            self._reading = False

        if delta is None:
            raise StopAsyncIteration

        if self._mailbox.catch_up(delta.choice):
            self._core.resume(self.sequence_ids[delta.choice])

        return delta

    def statistics(self) -> MemoryObjectStreamStatistics:
        """Return what anyio's memory object streams report.

        The buffer holds at most one delta per choice. The waiting senders are the choices that are
        paused until their deltas are read; the open sender is the engine.
        """
        return self._mailbox.statistics(self.num_choices, is_closed=self._is_closed)

    def close(self) -> None:
        """Cancel the request unless it has finished. Never blocks."""
        self._is_closed = True
        self._cancel()
        self._mailbox.close()

    def __del__(self) -> None:
        # Garbage collection may happen in any thread, so only thread-safe calls are allowed here.
        if hasattr(self, "_mailbox"):  # Else an interrupt ended the constructor.
            self._cancel()

    def _cancel(self) -> None:
        if not self._mailbox.ended:
            for sequence_id in self.sequence_ids:
                self._core.cancel(sequence_id)
