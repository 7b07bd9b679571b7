"""Reference of the native scheduler in plain Python, which checks each step of a core.

The reference knows every output in advance and reads the events of each step. Decisions that depend
on the prefix cache are taken from the events; all decisions are checked against the rules of
`docs/design.md`.
"""

from __future__ import annotations

__all__ = ("SchedulerReference",)

from bisect import insort
from collections.abc import Iterable, Mapping, Sequence

from aiomlc.runtime.engine.trace import TraceEvent
from tests.model.engine.traced_sequence import (
    PAGE_SIZE,
    CoreLimits,
    EventReader,
    Inbox,
    TracedSequence,
)

_MAX_TIMES_BYPASSED = 16


class SchedulerReference:
    """Model of a core; an `AssertionError` names the rule that a step of the core violates."""

    def __init__(self, limits: CoreLimits) -> None:
        self.limits = limits
        self.sequences: dict[int, TracedSequence] = {}
        self.running: list[TracedSequence] = []
        self.waiting: list[TracedSequence] = []
        self.paused: set[int] = set()
        self.preemptions = 0
        self.pins: dict[int, int] = {}  # Pages of pinned entries, by id in the prefix cache.
        self.num_evicted_pins = 0
        self._pin_ids: dict[int, int] = {}  # Their ids by sequence id, if a pause changed them.
        self._next_id: int | None = None  # Ids are assigned in order, to pauses too.
        self._num_deadlines = 0
        self._sources: set[int] = set()  # Sequences that the prefix cache may contain.
        self._inbox = Inbox()
        self._has_preempted = False

    # ---- Calls ----

    @property
    def is_full(self) -> bool:
        """Whether the next submission is rejected."""
        num_live = len(self.running) + self.num_waiting + len(self.paused)
        return num_live >= self.limits.max_running + self.limits.max_queue_size

    @property
    def num_waiting(self) -> int:
        return len(self.waiting) + len(self._inbox.submitted)

    @property
    def free_pages(self) -> int:
        """Number of pages that neither a running sequence nor a pin holds."""
        return self._unpinned_pages - sum(sequence.held_pages for sequence in self.running)

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
        """Return the sequences that have not finished."""
        return [sequence for sequence in self.sequences.values() if sequence.finish_reason is None]

    def submit(self, sequence: TracedSequence) -> None:
        assert self._next_id in {None, sequence.id}, "ids are not assigned in order"
        self._next_id = sequence.id + 1
        sequence.model_id = sequence.id
        self.sequences[sequence.id] = sequence
        if sequence.limit in {"timeout", "first_token_timeout"}:
            self._start_deadline(sequence)
        self._inbox.submitted.append(sequence)

    def cancel(self, sequence_id: int) -> None:
        self._inbox.cancelled.append(sequence_id)

    def pause(self, sequence_id: int, is_paused: bool) -> None:
        self._inbox.pauses.append((sequence_id, is_paused))

    def unpin(self, sequence_id: int) -> None:
        self._inbox.unpinned.append(sequence_id)

    def reset(self) -> None:
        self._inbox.is_reset = True

    # ---- Steps ----

    def step(self, events: Iterable[TraceEvent], completion_tokens: Mapping[int, int]) -> None:
        """Check one step.

        Args:
            events: The events of the step.
            completion_tokens: Completion tokens after the step, by sequence id; only used for
                sequences with draft tokens.
        """
        reader = EventReader(events)
        self._take_inbox(reader)
        self._expire(reader)
        if self.running or self.waiting:
            self._preempt(reader)
            self._admit(reader)
            self._evict_pins()
            self._run(reader, completion_tokens)
        reader.expect_end()

    def _take_inbox(self, events: EventReader) -> None:
        inbox, self._inbox = self._inbox, Inbox()
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
            self.pins.pop(self._pin_ids.pop(sequence_id, sequence_id), None)
        if inbox.is_reset:
            self.pins.clear()
            self._pin_ids.clear()
            self._sources = {sequence.id for sequence in self.running}
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
                sequence.deadline_order = None
        elif not is_paused and sequence_id in self.paused:
            self.paused.remove(sequence_id)
            insort(self.waiting, sequence)
            self._update_deadline(sequence)

    def _start_deadline(self, sequence: TracedSequence) -> None:
        sequence.deadline_order = self._num_deadlines
        self._num_deadlines += 1

    def _update_deadline(self, sequence: TracedSequence) -> None:
        """After the first token, restart an inter-token limit and end a first-token limit."""
        if sequence.num_generated and sequence.limit == "inter_token_timeout":
            self._start_deadline(sequence)
        elif sequence.num_generated and sequence.limit == "first_token_timeout":
            sequence.deadline_order = None

    def _expire(self, events: EventReader) -> None:
        """End all sequences with a running deadline, which has expired, in deadline order."""
        live = self.live()
        late = [
            (sequence.deadline_order, sequence)
            for sequence in live
            if sequence.deadline_order is not None
        ]
        for _, sequence in sorted(late, key=lambda pair: pair[0]):
            self._end(sequence, "timeout", events)

    def _release(self, sequence: TracedSequence) -> None:
        """Remove a sequence from the schedule in whatever state it is."""
        self.running = [other for other in self.running if other is not sequence]
        self.waiting = [other for other in self.waiting if other is not sequence]
        self.paused.discard(sequence.id)
        sequence.num_computed = sequence.held_pages = 0
        sequence.is_in_prefix_cache = False

    def _end(self, sequence: TracedSequence, reason: str, events: EventReader) -> None:
        events.expect("ended", sequence.id, reason, sequence.num_generated)
        self._release(sequence)
        sequence.finish_reason = reason
        if sequence.is_pinned and reason in {"stop", "length"}:
            # The last token is not in the KV cache.
            self.pins[sequence.model_id] = -(-(sequence.num_tokens - 1) // PAGE_SIZE)
            if sequence.model_id != sequence.id:
                self._pin_ids[sequence.id] = sequence.model_id

    def _evict_pins(self) -> None:
        """Evict as few pins as needed for the pages of a sequence that runs alone."""
        missing = sum(sequence.pages for sequence in self.running) - self._unpinned_pages
        assert missing <= 0 or len(self.running) == 1, "pins were evicted for several sequences"
        for model_id in sorted(self.pins):
            if missing <= 0:
                break
            missing -= self.pins.pop(model_id)
            self.num_evicted_pins += 1

    def _preempt(self, events: EventReader) -> None:
        """Preempt as few sequences as needed, the last ones first."""
        preempted = [event.sequence_id for event in events.take("preempted")]
        num_kept, pages = 0, 0
        for sequence in self.running:
            pages += sequence.pages
            if pages > self._unpinned_pages and num_kept > 0:
                break
            num_kept += 1
        expected = self.running[num_kept:][::-1]
        assert preempted == [sequence.id for sequence in expected], f"{preempted} were preempted"
        for sequence in expected:
            self._release(sequence)
            insort(self.waiting, sequence)
        self.preemptions += len(expected)
        self._has_preempted = bool(expected)

    def _admit(self, events: EventReader) -> None:
        admissions = events.take("admitted")
        admitted = [self.sequences[event.sequence_id] for event in admissions]
        assert not (admitted and self._has_preempted), "admitted in a step that preempts"
        assert all(sequence in self.waiting for sequence in admitted), "admitted, but not waiting"
        assert admitted == sorted(admitted), "admitted out of order"
        if not self._has_preempted:
            self._check_order(admitted, *self._check_room(admitted))
        for sequence, event in zip(admitted, admissions, strict=True):
            self._check_fork(sequence, event.values[0])
        for sequence, event in zip(admitted, admissions, strict=True):
            sequence.num_computed = event.values[0]
            if sequence.num_cached is None:
                sequence.num_cached = min(event.values[0], len(sequence.prompt))
            self.waiting.remove(sequence)
            insort(self.running, sequence)
            self._sources.add(sequence.id)

    def _check_room(self, admitted: Sequence[TracedSequence]) -> tuple[int, int]:
        """Check that each admission fits, and return the rows and free pages after all of them."""
        num_running = len(self.running)
        free = self._unpinned_pages - sum(sequence.pages for sequence in self.running)
        if not self.running and admitted and admitted[0].pages > free:
            self._check_pin_eviction(admitted, free)
            return 1, 0
        for sequence in admitted:
            assert sequence.pages + num_running <= free, f"{sequence.id} did not fit"
            free -= sequence.pages
            num_running += 1
        assert num_running <= max(self.limits.max_running, len(self.running)), "too many rows"
        return num_running, free

    def _check_pin_eviction(self, admitted: Sequence[TracedSequence], free: int) -> None:
        """Check that pins are evicted only for the first sequence, if none fits without that."""
        assert admitted == self.waiting[:1], "pins were evicted for a sequence after the first"
        for sequence in self.waiting:
            assert sequence.pages > free, f"pins were evicted although {sequence.id} fits"
            if sequence.max_times_bypassed >= _MAX_TIMES_BYPASSED:
                break

    def _check_order(self, admitted: Sequence[TracedSequence], num_running: int, free: int) -> None:
        """Check that only smaller sequences bypass waiting ones, and only a bounded number."""
        remaining = [sequence for sequence in self.waiting if sequence not in admitted]
        prefilling = [sequence for sequence in self.running if not sequence.is_decoding]
        prefilling += admitted
        deferrable = {
            sequence.id for sequence in remaining if self._may_wait_for(sequence, prefilling)
        }
        has_starving = False
        for sequence in remaining:
            later = [other for other in admitted if sequence < other]
            sequence.max_times_bypassed += len(later)
            if sequence.id not in deferrable:
                smaller = all(other.pages < sequence.pages for other in later)
                assert smaller, f"{sequence.id} was bypassed by a sequence of as many pages"
                sequence.min_times_bypassed += len(later)
            assert sequence.min_times_bypassed <= _MAX_TIMES_BYPASSED, f"{sequence.id} starves"
            fits = sequence.pages + num_running <= free and num_running < self.limits.max_running
            assert not fits or deferrable or has_starving, f"{sequence.id} waits although it fits"
            has_starving = has_starving or sequence.max_times_bypassed >= _MAX_TIMES_BYPASSED

    def _may_wait_for(self, sequence: TracedSequence, others: Iterable[TracedSequence]) -> bool:
        """Whether an earlier sequence in prefill has at least half of its tokens as a prefix."""
        return self.limits.max_recycling != 0 and any(
            other < sequence and 2 * sequence.num_common(other) >= sequence.num_tokens
            for other in others
        )

    def _check_fork(self, sequence: TracedSequence, num_cached: int) -> None:
        """Check that the cached tokens exist, and that running and pinned prefixes are found."""
        sources = [self.sequences[sequence_id] for sequence_id in self._sources]
        common = max((sequence.num_common(other) for other in sources), default=0)
        assert num_cached <= common, f"{sequence.id} has {num_cached} cached tokens, {common} exist"
        if self.limits.max_recycling == 0:
            assert num_cached == 0, "forked without a prefix cache"
            return

        prompts = [
            min(sequence.num_common(other), len(other.prompt))
            for other in self.running
            if other.is_in_prefix_cache
        ]
        prompts += [
            min(sequence.num_common(other), other.num_tokens - 1)
            for other in self.sequences.values()
            if other.model_id in self.pins
        ]
        # From an entry that is evicted in the same step, only full pages are forked.
        longest = max(prompts, default=0)
        assert num_cached > longest - PAGE_SIZE, f"{sequence.id} has {num_cached} cached tokens"

    def _run(self, events: EventReader, completion_tokens: Mapping[int, int]) -> None:
        for sequence in self.running:
            sequence.held_pages = sequence.pages
        taken = events.take("prefill", "decode")
        rows = [(event.sequence_id, event.values[0]) for event in taken]
        expected = self._expected_rows()
        assert rows, "the step has no rows"
        num_tokens = sum(count for _, count in rows)
        assert num_tokens <= self.limits.step_token_budget, f"the step has {num_tokens} tokens"
        row_ids, expected_ids = (
            [row_id for row_id, _ in rows],
            [sequence.id for sequence, _ in expected],
        )
        assert row_ids == expected_ids, f"expected rows {expected_ids}, got {row_ids}"
        num_decodes = 0
        for (_, count), (sequence, num_tokens_due) in zip(rows, expected, strict=True):
            num_decodes += count if sequence.is_decoding else 0
            self._check_row(sequence, count, num_tokens_due)
            sequence.num_computed += num_tokens_due
            if sequence.num_computed == sequence.num_tokens:
                self._generate(sequence, count - num_tokens_due, events, completion_tokens)
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

    def _expected_rows(self) -> list[tuple[TracedSequence, int]]:
        """Return one token for each decode, and the rest of the budget for prefills in order."""
        budget = self.limits.step_token_budget
        rows = []
        scheduled = sorted(self.running, key=lambda sequence: not sequence.is_decoding)
        # Completion tokens that are computed again do not hold up decodes.
        has_prefill = any(
            sequence.num_computed < len(sequence.prompt)
            for sequence in self.running
            if not sequence.is_decoding
        )
        if self.limits.separate_prefill and has_prefill:
            scheduled = [sequence for sequence in self.running if not sequence.is_decoding]
        for sequence in scheduled:
            count = min(sequence.num_tokens - sequence.num_computed, budget)
            budget -= count
            if count:
                rows.append((sequence, count))
        return rows

    def _check_row(self, sequence: TracedSequence, count: int, expected: int) -> None:
        has_draft = count > expected
        message = f"the row of {sequence.id} has {count} tokens instead of {expected}"
        assert count >= expected, message
        assert not has_draft or (self.limits.has_drafts and sequence.is_decoding), message
        assert not (has_draft and self._has_preempted), "draft tokens in a step that preempts"

    def _generate(
        self,
        sequence: TracedSequence,
        num_draft: int,
        events: EventReader,
        completion_tokens: Mapping[int, int],
    ) -> None:
        """Add the generated tokens of a row: one, and with draft tokens as many as are reported."""
        before = sequence.num_generated
        sequence.is_in_prefix_cache = True
        now = completion_tokens[sequence.id] if num_draft else before + 1
        assert 1 <= now - before <= 1 + num_draft, f"{sequence.id} has {now} completion tokens"
        sequence.num_generated = now
        self._update_deadline(sequence)
        expected = sequence.expected
        assert now <= expected.completion_tokens, f"{sequence.id} has {now} completion tokens"
        if before == 0:
            events.expect("first token", sequence.id)
        if now == expected.completion_tokens:
            self._end(sequence, expected.finish_reason, events)
            return

        sequence.num_computed = sequence.num_tokens - 1
        sequence.held_pages = -(-sequence.num_computed // PAGE_SIZE)
