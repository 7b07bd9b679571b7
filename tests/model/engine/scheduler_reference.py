"""What the native scheduler may do, in plain Python: it is told what was asked and what was done.

It knows every answer beforehand and reads the events of each step, so it need not guess a decision
that depends on the prefix cache; each decision it checks against the rules of `docs/design.md`.
"""

from __future__ import annotations

__all__ = ("Answer", "Limits", "SchedulerReference", "TracedSequence")

from bisect import insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from aiomlc.runtime.engine.trace import EventKind, TraceEvent

_PAGE_SIZE = 16
_MAX_TIMES_PASSED = 16


@dataclass(frozen=True, slots=True)
class Limits:
    """What a core was opened with."""

    total_pages: int
    max_running: int
    step_token_budget: int
    max_queue_size: int
    max_recycling: int  #: -1 is no limit, 0 is no prefix cache.
    has_drafts: bool
    separate_prefill: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """What a sequence says in whole, whoever else is there."""

    token_ids: tuple[int, ...]
    finish_reason: str
    completion_tokens: int  #: One more than the ids where a stop token ended it.


@dataclass(slots=True, eq=False)
class TracedSequence:
    """A sequence, as far as it got."""

    id: int
    priority: int
    prompt: tuple[int, ...]
    answer: Answer
    is_pinned: bool = False
    limit: str | None = None  #: The time limit that it has, which is over as soon as it runs.
    armed: int | None = None  #: The place of its deadline among all; None while none runs.
    model_id: int = -1  #: What the prefix cache calls it; a pause gives it another name.
    num_given: int = 0  #: Completion tokens, a stop token among them.
    num_computed: int = 0  #: Tokens in the KV cache.
    held_pages: int = 0
    num_cached: int | None = None  #: Prompt tokens that it found when it was first admitted.
    is_shared: bool = False  #: The prefix cache knows it: it gave a token since it was admitted.
    passed_surely: int = 0  #: Later arrivals that were admitted before it for want of pages.
    passed_at_most: int = 0
    finish_reason: str | None = None

    def __lt__(self, other: TracedSequence) -> bool:
        return (self.priority, self.id) < (other.priority, other.id)

    @property
    def num_tokens(self) -> int:
        return len(self.prompt) + self.num_given

    @property
    def pages(self) -> int:
        """Pages for all of its tokens."""
        return -(-self.num_tokens // _PAGE_SIZE)

    @property
    def is_decoding(self) -> bool:
        return self.num_given > 0 and self.num_tokens - self.num_computed == 1

    @property
    def given_ids(self) -> tuple[int, ...]:
        return self.answer.token_ids[: self.num_given]

    def num_common(self, other: TracedSequence) -> int:
        """Tokens that it could fork from another; its last one it computes in any case."""
        mine = (self.prompt + self.given_ids)[: self.num_tokens - 1]
        pairs = zip(mine, other.prompt + other.given_ids, strict=False)
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


@dataclass(slots=True)
class _Inbox:
    """What was asked for since the last step."""

    submitted: list[TracedSequence] = field(default_factory=list)
    cancelled: list[int] = field(default_factory=list)
    unpinned: list[int] = field(default_factory=list)
    pauses: list[tuple[int, bool]] = field(default_factory=list)
    is_reset: bool = False


class _Events:
    """A step's events, taken in their order."""

    def __init__(self, events: Iterable[TraceEvent]) -> None:
        self._rest = list(reversed(list(events)))

    def take(self, *kinds: EventKind) -> list[TraceEvent]:
        taken = []
        while self._rest and self._rest[-1].kind in kinds:
            taken.append(self._rest.pop())
        return taken

    def expect(self, kind: EventKind, sequence_id: int, *values: int | str) -> None:
        """The next event is this one."""
        event = self._rest.pop() if self._rest else None
        told = None if event is None else (event.kind, event.sequence_id, *event.fields().values())
        assert told == (kind, sequence_id, *values), f"{told}, not {kind} of {sequence_id} {values}"

    def expect_end(self) -> None:
        assert not self._rest, f"nobody asked for {list(reversed(self._rest))}"


class SchedulerReference:
    """Follows a core through its steps; an AssertionError says which rule was broken."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.sequences: dict[int, TracedSequence] = {}
        self.running: list[TracedSequence] = []
        self.waiting: list[TracedSequence] = []
        self.paused: set[int] = set()
        self.preemptions = 0
        self.forks = 0
        self.pins: dict[int, int] = {}  # Pages of pinned entries, by what the cache calls them.
        self.pins_lost = 0  # Those that gave way.
        self._pin_names: dict[int, int] = {}  # What it calls those that were paused, by their ids.
        self._next_id: int | None = None  # Ids are given in order, to pauses too.
        self._num_armed = 0
        self._sources: set[int] = set()  # What the prefix cache may have.
        self._inbox = _Inbox()
        self._has_preempted = False

    # ---- What is asked ----

    @property
    def is_full(self) -> bool:
        """Whether the next submission is refused."""
        num_live = len(self.running) + self.num_waiting + len(self.paused)
        return num_live >= self.limits.max_running + self.limits.max_queue_size

    @property
    def num_waiting(self) -> int:
        return len(self.waiting) + len(self._inbox.submitted)

    @property
    def free_pages(self) -> int:
        """Pages that no running sequence holds, and no pin."""
        return self._unpinned_pages - sum(one.held_pages for one in self.running)

    @property
    def _unpinned_pages(self) -> int:
        return self.limits.total_pages - sum(self.pins.values())

    @property
    def has_work(self) -> bool:
        inbox = self._inbox
        return bool(
            self.running
            or self.waiting
            or inbox.submitted
            or inbox.cancelled
            or inbox.unpinned
            or inbox.pauses
            or inbox.is_reset
        )

    def live(self) -> list[TracedSequence]:
        return [one for one in self.sequences.values() if one.finish_reason is None]

    def submit(self, sequence: TracedSequence) -> None:
        assert self._next_id in {None, sequence.id}, "ids are not given in order"
        self._next_id = sequence.id + 1
        sequence.model_id = sequence.id
        self.sequences[sequence.id] = sequence
        if sequence.limit in {"timeout", "first_token_timeout"}:
            self._arm(sequence)
        self._inbox.submitted.append(sequence)

    def cancel(self, sequence_id: int) -> None:
        self._inbox.cancelled.append(sequence_id)

    def pause(self, sequence_id: int, is_paused: bool) -> None:
        self._inbox.pauses.append((sequence_id, is_paused))

    def unpin(self, sequence_id: int) -> None:
        self._inbox.unpinned.append(sequence_id)

    def reset(self) -> None:
        self._inbox.is_reset = True

    # ---- What is done ----

    def step(self, events: Iterable[TraceEvent], given: Mapping[int, int]) -> None:
        """Check one step.

        Args:
            events: What the step recorded.
            given: Completion tokens that sequences have by now; read only where drafts were.
        """
        rest = _Events(events)
        self._take_inbox(rest)
        self._expire(rest)
        if self.running or self.waiting:
            self._preempt(rest)
            self._admit(rest)
            self._evict_pins()
            self._run(rest, given)
        rest.expect_end()

    def _take_inbox(self, events: _Events) -> None:
        inbox, self._inbox = self._inbox, _Inbox()
        for sequence in inbox.submitted:
            events.expect("submitted", sequence.id, len(sequence.prompt))
            insort(self.waiting, sequence)
        for sequence_id in inbox.cancelled:
            cancelled = self.sequences.get(sequence_id)
            if cancelled is not None and cancelled.finish_reason is None:
                self._end(cancelled, "abort", events)
        for sequence_id, is_paused in inbox.pauses:
            self._pause(sequence_id, is_paused)
        for sequence_id in inbox.unpinned:
            self.pins.pop(self._pin_names.pop(sequence_id, sequence_id), None)
        if inbox.is_reset:
            self.pins.clear()
            self._pin_names.clear()
            self._sources = {one.id for one in self.running}
            self.preemptions = 0

    def _pause(self, sequence_id: int, is_paused: bool) -> None:
        sequence = self.sequences.get(sequence_id)
        if sequence is None or sequence.finish_reason is not None:
            return

        if is_paused and sequence_id not in self.paused:
            if sequence in self.running:
                assert self._next_id is not None
                sequence.model_id = self._next_id
                self._next_id += 1
            self._release(sequence)
            self.paused.add(sequence_id)
            if sequence.limit == "inter_token_timeout":
                sequence.armed = None
        elif not is_paused and sequence_id in self.paused:
            self.paused.remove(sequence_id)
            insort(self.waiting, sequence)
            self._restart(sequence)

    def _arm(self, sequence: TracedSequence) -> None:
        sequence.armed = self._num_armed
        self._num_armed += 1

    def _restart(self, sequence: TracedSequence) -> None:
        """The time between tokens begins anew where there was one; that to the first is over."""
        if sequence.num_given and sequence.limit == "inter_token_timeout":
            self._arm(sequence)
        elif sequence.num_given and sequence.limit == "first_token_timeout":
            sequence.armed = None

    def _expire(self, events: _Events) -> None:
        """Who has a deadline is late by now, whatever it waits for; the first comes first."""
        late = [(one.armed, one) for one in self.live() if one.armed is not None]
        for _, sequence in sorted(late, key=lambda pair: pair[0]):
            self._end(sequence, "timeout", events)

    def _release(self, sequence: TracedSequence) -> None:
        """Take a sequence out of the schedule, wherever it is."""
        self.running = [one for one in self.running if one is not sequence]
        self.waiting = [one for one in self.waiting if one is not sequence]
        self.paused.discard(sequence.id)
        sequence.num_computed = sequence.held_pages = 0
        sequence.is_shared = False

    def _end(self, sequence: TracedSequence, reason: str, events: _Events) -> None:
        events.expect("ended", sequence.id, reason, sequence.num_given)
        self._release(sequence)
        sequence.finish_reason = reason
        if sequence.is_pinned and reason in {"stop", "length"}:
            # The last token was not computed.
            self.pins[sequence.model_id] = -(-(sequence.num_tokens - 1) // _PAGE_SIZE)
            if sequence.model_id != sequence.id:
                self._pin_names[sequence.id] = sequence.model_id

    def _evict_pins(self) -> None:
        """They give way where the first of all could not go on or start, and no more than must."""
        missing = sum(one.pages for one in self.running) - self._unpinned_pages
        assert missing <= 0 or len(self.running) == 1, "pins gave way to more than one"
        for model_id in sorted(self.pins):
            if missing <= 0:
                break
            missing -= self.pins.pop(model_id)
            self.pins_lost += 1

    def _preempt(self, events: _Events) -> None:
        """Who comes last gives way, and no more of them than must."""
        told = [event.sequence_id for event in events.take("preempted")]
        survivors, pages = 0, 0
        for sequence in self.running:
            pages += sequence.pages
            if pages > self._unpinned_pages and survivors > 0:
                break
            survivors += 1
        losers = self.running[survivors:][::-1]
        assert told == [one.id for one in losers], f"{told} were preempted"
        for sequence in losers:
            self._release(sequence)
            insort(self.waiting, sequence)
        self.preemptions += len(losers)
        self._has_preempted = bool(losers)

    def _admit(self, events: _Events) -> None:
        told = events.take("admitted")
        admitted = [self.sequences[event.sequence_id] for event in told]
        assert not (admitted and self._has_preempted), "room that was just taken was given away"
        assert all(one in self.waiting for one in admitted), "admitted, but not waiting"
        assert admitted == sorted(admitted), "admitted out of order"
        if not self._has_preempted:
            self._check_order(admitted, *self._check_room(admitted))
        for sequence, event in zip(admitted, told, strict=True):
            self._check_fork(sequence, event.values[0])
        for sequence, event in zip(admitted, told, strict=True):
            sequence.num_computed = event.values[0]
            if sequence.num_cached is None:
                sequence.num_cached = min(event.values[0], len(sequence.prompt))
            self.waiting.remove(sequence)
            insort(self.running, sequence)
            self._sources.add(sequence.id)

    def _check_room(self, admitted: Sequence[TracedSequence]) -> tuple[int, int]:
        """The rows and the free pages after admissions, each of which had room when it came."""
        num_running = len(self.running)
        free = self._unpinned_pages - sum(one.pages for one in self.running)
        if not self.running and admitted and admitted[0].pages > free:
            self._check_pins_give_way(admitted, free)
            return 1, 0
        for sequence in admitted:
            assert sequence.pages + num_running <= free, f"{sequence.id} had no room"
            free -= sequence.pages
            num_running += 1
        assert num_running <= max(self.limits.max_running, len(self.running)), "too many rows"
        return num_running, free

    def _check_pins_give_way(self, admitted: Sequence[TracedSequence], free: int) -> None:
        """Only to the first of all, where nobody runs or could start beside them."""
        assert admitted == self.waiting[:1], "pins gave way to one that is not the first"
        for sequence in self.waiting:
            assert sequence.pages > free, f"pins gave way, and {sequence.id} had room"
            if sequence.passed_at_most >= _MAX_TIMES_PASSED:
                break

    def _check_order(self, admitted: Sequence[TracedSequence], num_running: int, free: int) -> None:
        """Nobody is passed who needs no more room than the one who passes, nor for ever."""
        left = [one for one in self.waiting if one not in admitted]
        prefilling = [one for one in self.running if not one.is_decoding] + list(admitted)
        deferrable = {one.id for one in left if self._may_wait_for(one, prefilling)}
        is_kept_back = False
        for sequence in left:
            later = [one for one in admitted if sequence < one]
            sequence.passed_at_most += len(later)
            if sequence.id not in deferrable:
                smaller = all(one.pages < sequence.pages for one in later)
                assert smaller, f"{sequence.id} was passed by one that needs as much"
                sequence.passed_surely += len(later)
            assert sequence.passed_surely <= _MAX_TIMES_PASSED, f"{sequence.id} starves"
            fits = sequence.pages + num_running <= free and num_running < self.limits.max_running
            assert not fits or deferrable or is_kept_back, f"{sequence.id} waits, and had room"
            is_kept_back = is_kept_back or sequence.passed_at_most >= _MAX_TIMES_PASSED

    def _may_wait_for(self, sequence: TracedSequence, others: Iterable[TracedSequence]) -> bool:
        """Whether another that is being computed could spare it half of its work."""
        return self.limits.max_recycling != 0 and any(
            other < sequence and 2 * sequence.num_common(other) >= sequence.num_tokens
            for other in others
        )

    def _check_fork(self, sequence: TracedSequence, num_cached: int) -> None:
        """What is not computed was computed before; what runs beside it is found."""
        self.forks += num_cached > 0
        sources = [self.sequences[one] for one in self._sources]
        common = max((sequence.num_common(one) for one in sources), default=0)
        assert num_cached <= common, f"{sequence.id} was given {num_cached} of {common} tokens"
        if self.limits.max_recycling == 0:
            assert num_cached == 0, "forked without a prefix cache"
            return

        prompts = [
            min(sequence.num_common(one), len(one.prompt)) for one in self.running if one.is_shared
        ]
        prompts += [
            min(sequence.num_common(one), one.num_tokens - 1)
            for one in self.sequences.values()
            if one.model_id in self.pins
        ]
        # From an entry that has to go in the same step only whole pages are forked.
        assert num_cached > max(prompts, default=0) - _PAGE_SIZE, f"{sequence.id} found too little"

    def _run(self, events: _Events, given: Mapping[int, int]) -> None:
        for sequence in self.running:
            sequence.held_pages = sequence.pages
        rows = [(one.sequence_id, one.values[0]) for one in events.take("prefill", "decode")]
        wanted = self._rows()
        assert rows, "a step without rows"
        num_tokens = sum(count for _, count in rows)
        assert num_tokens <= self.limits.step_token_budget, f"a step of {num_tokens} tokens"
        assert [one for one, _ in rows] == [one.id for one, _ in wanted], f"{rows}, not {wanted}"
        num_decodes = 0
        for (_, count), (sequence, share) in zip(rows, wanted, strict=True):
            num_decodes += count if sequence.is_decoding else 0
            self._check_share(sequence, count, share)
            sequence.num_computed += share
            if sequence.num_computed == sequence.num_tokens:
                self._give(sequence, count - share, events, given)
        events.expect(
            "step",
            -1,
            len(rows),
            num_tokens - num_decodes,
            num_decodes,
            len(self.running),
            len(self.waiting),
            self.free_pages,
        )

    def _rows(self) -> list[tuple[TracedSequence, int]]:
        """A token for everyone that decodes; the others share the rest, the first one first."""
        left = self.limits.step_token_budget
        rows = []
        taking_part = sorted(self.running, key=lambda one: not one.is_decoding)
        if self.limits.separate_prefill and not taking_part[-1].is_decoding:
            taking_part = [one for one in self.running if not one.is_decoding]
        for sequence in taking_part:
            share = min(sequence.num_tokens - sequence.num_computed, left)
            left -= share
            if share:
                rows.append((sequence, share))
        return rows

    def _check_share(self, sequence: TracedSequence, count: int, share: int) -> None:
        has_draft = count > share
        assert count >= share, f"{sequence.id} got {count} tokens of {share}"
        assert not has_draft or (self.limits.has_drafts and sequence.is_decoding), (
            f"{sequence.id} got {count} tokens of {share}"
        )
        assert not (has_draft and self._has_preempted), "a guess got room that was just taken"

    def _give(
        self, sequence: TracedSequence, num_draft: int, events: _Events, given: Mapping[int, int]
    ) -> None:
        """The tokens that a row gave, one unless it had a draft."""
        is_first = sequence.num_given == 0
        sequence.is_shared = True
        now = given[sequence.id] if num_draft else sequence.num_given + 1
        assert 1 <= now - sequence.num_given <= 1 + num_draft, f"{sequence.id} has {now} tokens"
        sequence.num_given = now
        self._restart(sequence)
        assert now <= sequence.answer.completion_tokens, f"{sequence.id} says too much"
        if is_first:
            events.expect("first token", sequence.id)
        if now == sequence.answer.completion_tokens:
            self._end(sequence, sequence.answer.finish_reason, events)
            return

        sequence.num_computed = sequence.num_tokens - 1
        sequence.held_pages = -(-sequence.num_computed // _PAGE_SIZE)
