"""The live requests of an engine: their sequences and mailboxes."""

from __future__ import annotations

__all__ = ("RequestTable",)

import itertools
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import NamedTuple, final

from anyio import Event

from aiomlc.errors import (
    AiomlcError,
    DeadlineExceededError,
    DuplicateRequestError,
    LogitsProcessorError,
    RequestAbortedError,
    RequestFailedError,
)
from aiomlc.runtime.concurrency.turns import Turns
from aiomlc.runtime.engine.core_protocol import Core, Record
from aiomlc.runtime.engine.logits_processors import LogitsProcessors
from aiomlc.runtime.engine.prompt import Prompt
from aiomlc.runtime.engine.stream import DeltaStream, Mailbox, StreamObserver
from aiomlc.runtime.engine.submission import submit_choices
from aiomlc.sampling_params import SequenceOptions

# They take up to some milliseconds.
_RECORDS_PER_DELIVERY = 512


class _RequestEntry(NamedTuple):
    """The request that a sequence belongs to, and the mailbox for its records."""

    request_id: str
    mailbox: Mailbox
    choice: int  #: The index of the request's choice.
    options: SequenceOptions


@final
class RequestTable:
    """The live requests of a core. Records are delivered to the mailboxes of their requests.

    A request has one sequence per choice; all of them share a mailbox. All methods must be called
    in the thread of one event loop.
    """

    def __init__(self, core: Core, *, max_unread_tokens: int) -> None:
        """Create a table; a choice is paused at `max_unread_tokens` unread tokens."""
        self._core = core
        self._max_unread_tokens = max_unread_tokens
        self._turns = Turns()
        self._drained: Iterator[Record] = iter(())  # The records that are being delivered.
        # The table refers to the mailboxes and not to the streams, so that a dropped stream is
        # garbage collected and cancels its request.
        self._entries: dict[int, _RequestEntry] = {}  # By sequence id.
        self._sequence_ids: dict[str, tuple[int, ...]] = {}  # One for each choice, by request id.
        self._groups: dict[str, tuple[str, ...]] = {}  # The requests of each group.
        self._default_ids = (f"request-{number}" for number in itertools.count(1))
        self._is_idle: Event | None = None  # Created by `wait_idle`; set when no request is live.

    @property
    def request_ids(self) -> list[str]:
        """The ids of the live requests."""
        return list(self._sequence_ids)

    def open_stream(
        self,
        prompt: Prompt,
        options: SequenceOptions,
        request_id: str | None,
        num_choices: int,
        observer: StreamObserver | None,
        event_loop: object,
    ) -> DeltaStream:
        """Submit a prompt and return the stream of its completions. Does not block.

        Raises:
            RequestError: If the request is rejected; no other request is affected.
            EngineError: If the core is closed, dead or overloaded.
        """
        request_id = self._free_id() if request_id is None else request_id
        if self._is_live(request_id):
            raise DuplicateRequestError(request_id)

        mailbox = Mailbox(
            num_choices,
            observer,
            max_unread=self._max_unread_tokens,
            strips_leading_space=options.strips_leading_space,
            loop=event_loop,
            turns=self._turns,
        )
        sequence_ids = submit_choices(self._core, prompt, options, num_choices)
        for choice, sequence_id in enumerate(sequence_ids):
            self._entries[sequence_id] = _RequestEntry(request_id, mailbox, choice, options)

        self._sequence_ids[request_id] = sequence_ids
        return DeltaStream(self._core, sequence_ids, request_id, mailbox)

    def add_group(self, group_id: str, request_ids: Iterable[str]) -> None:
        """Let `abort` end live requests, such as those of several prompts, by one id."""
        self._groups = {
            name: members
            for name, members in self._groups.items()
            if not self._sequence_ids.keys().isdisjoint(members)
        }
        self._groups[group_id] = tuple(request_ids)

    def abort(self, request_id: str) -> None:
        """End a request, or a group, for its readers and in the core; ignore an unknown id."""
        for member in (request_id, *self._groups.pop(request_id, ())):
            self._abort(member)

    def _abort(self, request_id: str) -> None:
        for sequence_id in self._sequence_ids.get(request_id, ()):
            if sequence_id in self._entries:
                self._core.cancel(sequence_id)
                self._entries[sequence_id].mailbox.fail(RequestAbortedError(request_id))
                self._forget(sequence_id)

    async def wait_idle(self) -> None:
        """Wait until no request is live."""
        while self._entries:
            self._is_idle = self._is_idle or Event()
            await self._is_idle.wait()

    def deliver(self) -> bool:
        """Put some of the core's records into the mailboxes of their requests.

        Returns:
            Whether records are left.
        """
        records = list(islice(self._drained, _RECORDS_PER_DELIVERY))
        if not records:
            self._drained = iter(self._core.drain())
            records = list(islice(self._drained, _RECORDS_PER_DELIVERY))

        self._put(records)
        self._turns.begin()
        return len(records) == _RECORDS_PER_DELIVERY

    def _put(self, records: Iterable[Record]) -> None:
        for record in records:
            entry = self._entries.get(record.sequence_id)
            if entry is None:
                continue

            if record.finish_reason is None:  # Most records, so this path is short.
                if not entry.mailbox.ended and entry.mailbox.put(record, entry.choice):
                    self._core.pause(record.sequence_id)
                continue

            if record.finish_reason == "error" and self._core.failure():
                continue  # The engine is dead; `end` fails every request.

            self._forget(record.sequence_id)
            if not entry.mailbox.ended:
                self._deliver_final(record, entry)

    def cancel_all(self, reason: str) -> None:
        """Fail every request, and cancel it in the core."""
        for sequence_id in self._entries:
            self._core.cancel(sequence_id)

        self.end(lambda: RequestFailedError(reason))

    def end(self, reason: Callable[[], AiomlcError]) -> None:
        """Fail every remaining request, each with a separate error."""
        for entry in list(self._entries.values()):
            entry.mailbox.fail(reason())

        self._entries.clear()
        self._sequence_ids.clear()
        self._groups.clear()
        self._notify_idle()

    def _deliver_final(self, record: Record, entry: _RequestEntry) -> None:
        mailbox = entry.mailbox
        if record.finish_reason == "error":
            self._fail(mailbox, _failure(entry, record.error or "the request failed"))
        elif record.finish_reason == "abort":
            self._fail(mailbox, RequestAbortedError(entry.request_id))
        elif record.finish_reason == "timeout":
            mailbox.put(record._replace(finish_reason=None, error=None), entry.choice)
            self._fail(mailbox, _timeout(entry, record.error or "timeout"))
        else:
            mailbox.put(record, entry.choice)

    def _fail(self, mailbox: Mailbox, error: AiomlcError) -> None:
        mailbox.fail(error)
        for sequence_id, entry in self._entries.items():
            if entry.mailbox is mailbox:  # Another choice, which is not read any more.
                self._core.cancel(sequence_id)

    def _forget(self, sequence_id: int) -> None:
        request_id = self._entries.pop(sequence_id).request_id
        # Closing a stream frees its id at once, so a later request may have the same id.
        siblings = self._sequence_ids.get(request_id, ())
        if sequence_id in siblings and not self._entries.keys() & siblings:
            del self._sequence_ids[request_id]

        self._notify_idle()

    def _free_id(self) -> str:
        return next(name for name in self._default_ids if not self._is_live(name))

    def _is_live(self, request_id: str) -> bool:
        live_ids = self._entries.keys() & self._sequence_ids.get(request_id, ())
        return any(not self._entries[sequence_id].mailbox.ended for sequence_id in live_ids)

    def _notify_idle(self) -> None:
        if self._is_idle is not None and not self._entries:
            self._is_idle.set()
            self._is_idle = None


def _failure(entry: _RequestEntry, reason: str) -> AiomlcError:
    processors = entry.options.logits_processors
    cause = processors.take_failure() if isinstance(processors, LogitsProcessors) else None
    if cause is None:
        return RequestFailedError(reason)

    error = LogitsProcessorError(entry.request_id)
    error.__cause__ = cause
    return error


def _timeout(entry: _RequestEntry, limit: str) -> DeadlineExceededError:
    seconds = getattr(entry.options, limit)
    return DeadlineExceededError(entry.request_id, limit=limit, seconds=seconds)
