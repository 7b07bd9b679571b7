"""The deltas of one request: a mailbox that delivery fills and a stream that one task reads."""

from __future__ import annotations

__all__ = ("Delta", "DeltaStream", "Mailbox", "StreamObserver")

import logging
import sys
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from types import TracebackType
from typing import NamedTuple, Protocol, Self, final

from anyio import BusyResourceError
from anyio.lowlevel import checkpoint

from aiomlc.errors import AiomlcError
from aiomlc.runtime.concurrency.event_loop import Waiter, check_loop, waiter_factory
from aiomlc.runtime.engine.core_protocol import Core, Record, TokenLogprob
from aiomlc.runtime.engine.statistics import RequestTiming

_LOG = logging.getLogger("aiomlc")


class Delta(NamedTuple):
    """What one choice gained since its reader last looked; counts are of the whole choice."""

    text: str
    token_ids: tuple[int, ...]
    finish_reason: str | None  #: "stop" or "length" in the last delta, else None.
    prompt_tokens: int
    completion_tokens: int
    logprobs: tuple[TokenLogprob, ...]  #: One for each of `token_ids`, if asked for.
    cached_tokens: int  #: Prompt tokens that were in the KV cache already.
    choice: int = 0  #: Which of the request's choices.
    timing: RequestTiming | None = None  #: In the last delta, if the core tells it.
    #: Of each prompt token but the first, if asked for: in the first delta of the first choice.
    prompt_logprobs: tuple[TokenLogprob, ...] = ()


class StreamObserver(Protocol):
    """Somebody beside the reader who is told of a request, in the event loop's thread."""

    def on_record(self, record: Record, choice: int) -> None:
        """A record came."""

    def on_end(self, error: AiomlcError | None) -> None:
        """It is over, once: with its last record, by the reader's leaving, or with an error."""


@final
class Mailbox:
    """What waits for one reader: at most one delta per choice, which later records are merged into.

    So delivery never waits for a slow reader. One that has more than some tokens to read is
    *behind*, and its choice pauses until they are read. A mailbox has ended when every choice has,
    or when it was failed or closed. It is a waiter beside a value and not a memory object stream:
    a read that is cancelled while it is woken loses nothing, and a delta costs a fraction.
    """

    __slots__ = (
        "_arrived",
        "_behind",
        "_error",
        "_loop",
        "_make_waiter",
        "_max_unread",
        "_num_open",
        "_observer",
        "_waiting",
        "ended",
    )

    def __init__(
        self,
        num_choices: int = 1,
        observer: StreamObserver | None = None,
        *,
        max_unread: int = sys.maxsize,
        loop: object = None,
    ) -> None:
        """`loop` is the event loop that puts, in which the reader must be, too; None is any."""
        self._loop = loop
        self._max_unread = max_unread  # Tokens of a choice.
        self._behind: set[int] = set()  # Choices that pause.
        self._waiting: dict[int, list[Record]] = {}  # By choice, the one that waits longest first.
        self._num_open = num_choices
        self._error: AiomlcError | None = None
        self._arrived: Waiter | None = None  # Set by the reader that waits.
        self._make_waiter: Callable[[], Waiter] | None = None
        self._observer = observer
        self.ended: bool = False

    def put(self, record: Record, choice: int = 0) -> bool:
        """Add a record to what waits; one with a finish reason is the last of its choice.

        Returns whether the reader has just fallen behind with it, so that it should pause.
        """
        falls_behind = False
        earlier = self._waiting.get(choice)
        if earlier is None:
            self._waiting[choice] = [record]
        else:
            earlier.append(record)
            num_unread = record.completion_tokens - earlier[0].completion_tokens + 1
            if num_unread >= self._max_unread and choice not in self._behind:
                self._behind.add(choice)
                falls_behind = True

        if self._observer is not None:
            self._tell(partial(self._observer.on_record, record, choice))

        if record.finish_reason is not None:
            self._num_open -= 1
            if self._num_open == 0:
                self._end(None)

        self._wake()
        return falls_behind and record.finish_reason is None

    def catch_up(self, choice: int) -> bool:
        """Note that what waited was read; returns whether the choice had fallen behind."""
        if choice not in self._behind:
            return False

        self._behind.discard(choice)
        return not self.ended

    def fail(self, error: AiomlcError) -> None:
        """End the stream with an error, after what waits has been read."""
        if not self.ended:
            self._error = error
            self._end(error)
            self._wake()

    def close(self) -> None:
        """Forget what waits and end."""
        self._waiting.clear()
        self._error = None
        if not self.ended:
            self._end(None)

        self._wake()

    async def take(self) -> Delta | None:
        """Wait for something to read; None is the end.

        Raises:
            AiomlcError: the stream was failed. Only once; then it is at its end.
            EngineClosedError: this is another event loop, which could not be woken.
        """
        if self._waiting or self.ended:
            await checkpoint()

        while not self._waiting and not self.ended:
            if self._make_waiter is None:
                if self._loop is not None:
                    check_loop(self._loop)

                self._make_waiter = waiter_factory()

            self._arrived = self._make_waiter()
            await self._arrived

        return self.take_nowait()

    def take_nowait(self) -> Delta | None:
        """Take what waits, or raise the error that ended the stream; None is nothing."""
        if not self._waiting:
            error, self._error = self._error, None
            if error is not None:
                raise error

            return None

        if len(self._waiting) == 1:
            choice, records = self._waiting.popitem()
        else:
            choice = next(iter(self._waiting))
            records = self._waiting.pop(choice)
        last = records[-1]
        text, token_ids, logprobs = last.text, last.token_ids, last.logprobs
        if len(records) > 1:
            text = "".join(record.text for record in records)
            token_ids = tuple(chain.from_iterable(record.token_ids for record in records))
            logprobs = tuple(chain.from_iterable(record.logprobs for record in records))

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
            self._tell(partial(self._observer.on_end, error))

    def _tell(self, tell: Callable[[], None]) -> None:
        # Whoever watches is not the reader's business, nor that of the others.
        try:
            tell()
        except Exception:  # noqa: BLE001 - of the program's own code, and logged.
            self._observer = None
            _LOG.exception("the observer of a request failed, and is told no more")

    def _wake(self) -> None:
        arrived, self._arrived = self._arrived, None
        if arrived is not None and not arrived.done():
            arrived.set_result(None)


@final
class DeltaStream:
    """The deltas of one request, each choice's in order. Leaving it early cancels the request.

    An async iterator for one task, and an async context manager. A stream that is dropped
    without being closed cancels its request too, when it is garbage collected.
    """

    def __init__(
        self, core: Core, sequence_ids: Sequence[int], request_id: str, mailbox: Mailbox
    ) -> None:
        self.request_id = request_id
        self.sequence_ids: tuple[int, ...] = tuple(sequence_ids)  #: The core's, one per choice.
        self._core = core
        self._mailbox = mailbox
        self._reading = False

    @property
    def num_choices(self) -> int:
        """How many completions it tells."""
        return len(self.sequence_ids)

    def __repr__(self) -> str:
        state = "ended" if self._mailbox.ended else "open"
        return f"<DeltaStream {self.request_id!r} {state}>"

    def __aiter__(self) -> Self:
        return self

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

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    async def aclose(self) -> None:
        """Close the stream."""
        self.close()
        await checkpoint()

    def close(self) -> None:
        """Cancel what is unfinished. Never blocks, so it is safe in a cancelled scope."""
        self._cancel()
        self._mailbox.close()

    def __del__(self) -> None:
        # Any thread may collect garbage, and at any moment: thread-safe calls, nothing else.
        self._cancel()

    def _cancel(self) -> None:
        if not self._mailbox.ended:
            for sequence_id in self.sequence_ids:
                self._core.cancel(sequence_id)
