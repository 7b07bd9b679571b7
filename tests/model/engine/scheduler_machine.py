"""State machine that calls a native core at random and checks it against the reference."""

from __future__ import annotations

__all__ = ("PROMPT_FAMILIES", "SchedulerMachine")

import select
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from aiomlc.errors import (
    BadRequestError,
    EngineClosedError,
    EngineOverloadedError,
    PromptTooLongError,
)
from aiomlc.runtime.engine.core_protocol import Record
from aiomlc.runtime.engine.prompt import Prompt
from aiomlc.sampling_params import SequenceOptions
from tests.model.engine.scheduler_bench import (
    MAX_ROWS,
    MAX_SEQUENCE_TOKENS,
    TOTAL_PAGES,
    UNLIMITED,
    ModelBench,
)
from tests.model.engine.scheduler_reference import SchedulerReference
from tests.model.engine.traced_sequence import CoreLimits, ExpectedOutput, TracedSequence

PROMPT_FAMILIES = [
    [(7 * i * i + 3 * i + 91 * family) % 256 for i in range(120)] for family in range(3)
]
_PROMPTS = st.builds(
    lambda family, length, tail: (*PROMPT_FAMILIES[family][: length - 1], tail),
    st.integers(0, 2),
    st.sampled_from([1, 8, 15, 16, 17, 24, 31, 33, 48, 60, 90, 111]),
    st.sampled_from([3, 200]),
)
_SAMPLINGS = st.sampled_from(
    [
        SequenceOptions(temperature=0),
        SequenceOptions(temperature=0),
        SequenceOptions(temperature=1.2, seed=1),
        SequenceOptions(temperature=0.7, top_p=0.9, presence_penalty=0.5, seed=-2),
    ]
)
_MAX_TOKENS = st.sampled_from([1, 2, 8, 20, 40, None])
_IDS = st.integers(0, 40)
_EXPIRED_SECONDS = 1e-9  # A time limit that expires before the next step.
_LIMITS = st.sampled_from(
    [None] * 7 + ["timeout", "first_token_timeout", "inter_token_timeout"],
)


class SchedulerMachine(RuleBasedStateMachine):
    """A core and its reference, which get the same calls."""

    def __init__(self, bench: ModelBench, counts: Counter[str]) -> None:
        super().__init__()
        self.bench = bench
        self.counts = counts  # Of events and results, to check the coverage of the examples.
        self.is_reading = True
        self.next_event = 0
        self.read_ids: dict[int, tuple[int, ...]] = {}
        self.read_text: dict[int, str] = {}
        self.ended_ids: set[int] = set()  # Sequences whose final record was read.
        self.is_consistent = True  # False once a step has failed a check.

    @initialize(
        budget=st.sampled_from([1, 4, 16, 32, 32]),
        queue=st.sampled_from([0, 2, 8, UNLIMITED]),
        recycling=st.sampled_from([0, 2, -1]),
        has_drafts=st.sampled_from([False, False, True]),
        separate_prefill=st.sampled_from([False, False, True]),
        closes_early=st.booleans(),
    )
    def open(
        self,
        budget: int,
        queue: int,
        recycling: int,
        has_drafts: bool,
        separate_prefill: bool,
        closes_early: bool,
    ) -> None:
        self.closes_early = closes_early
        limits = CoreLimits(
            TOTAL_PAGES,
            min(MAX_ROWS, budget),
            budget,
            queue,
            recycling,
            has_drafts,
            separate_prefill,
        )
        self.core = self.bench.open_core(limits)
        self.core.enable_trace()
        self.reference = SchedulerReference(limits)
        self.poll = select.poll()
        self.poll.register(self.core.wake_fd, select.POLLIN)

    # ---- Calls ----

    @rule(
        prompt=_PROMPTS,
        sampling=_SAMPLINGS,
        max_tokens=_MAX_TOKENS,
        stop_index=st.sampled_from([None, None, None, 0, 3, 17]),
        priority=st.sampled_from([0, 0, 0, -1, 1]),
        n=st.integers(1, 3),
        limit=_LIMITS,
    )
    def submit(
        self,
        prompt: tuple[int, ...],
        sampling: SequenceOptions,
        max_tokens: int | None,
        stop_index: int | None,
        priority: int,
        n: int,
        limit: str | None = None,
    ) -> None:
        room = MAX_SEQUENCE_TOKENS - len(prompt)
        count = min(room, room if max_tokens is None else max_tokens)
        for choice in range(n):
            choice_options = sampling.of_choice(choice)
            tokens = self.bench.run_alone(prompt, choice_options, count)
            stops = () if stop_index is None or stop_index >= count else (tokens[stop_index],)
            options = replace(
                choice_options, max_tokens=max_tokens, priority=priority, stop_token_ids=stops
            )
            self._submit_one(prompt, options, _expected_output(tokens, stops), limit)

    def _submit_one(
        self,
        prompt: tuple[int, ...],
        options: SequenceOptions,
        expected: ExpectedOutput,
        limit: str | None = None,
    ) -> None:
        if limit is not None:
            options = replace(options, **{limit: _EXPIRED_SECONDS})  # type: ignore[arg-type]
        if self.reference.is_full:
            self.counts["rejected"] += 1
            with pytest.raises(EngineOverloadedError):
                self.core.submit(Prompt(prompt), options)
            return

        sequence_id = self.core.submit(Prompt(prompt), options)
        sequence = TracedSequence(
            sequence_id, options.priority or 0, prompt, expected, options.is_pinned, limit
        )
        self.reference.submit(sequence)

    @rule(length=st.integers(MAX_SEQUENCE_TOKENS, 4 * MAX_SEQUENCE_TOKENS))
    def submit_too_long_prompt(self, length: int) -> None:
        with pytest.raises(PromptTooLongError):
            self.core.submit(Prompt([1] * length), SequenceOptions())

    @rule(prompt=st.sampled_from([(), (-1,), (320,), (1 << 40,)]))
    def submit_invalid_prompt(self, prompt: tuple[int, ...]) -> None:
        with pytest.raises(BadRequestError):
            self.core.submit(Prompt(prompt), SequenceOptions())

    @rule(
        prompts=st.lists(_PROMPTS, min_size=4, max_size=12),
        sampling=_SAMPLINGS,
        max_tokens=st.integers(20, 40),
        stop_index=st.sampled_from([None, None, None, 3]),
    )
    def submit_many(
        self,
        prompts: list[tuple[int, ...]],
        sampling: SequenceOptions,
        max_tokens: int,
        stop_index: int | None,
    ) -> None:
        """Overflow the queue, and let the admitted sequences exceed the pages."""
        for prompt in prompts:
            self.submit(prompt, sampling, max_tokens, stop_index, priority=0, n=1)

    @rule(prompt=_PROMPTS, limit=st.sampled_from(["timeout", "first_token_timeout"]))
    def submit_and_let_expire(self, prompt: tuple[int, ...], limit: str) -> None:
        self.submit(prompt, SequenceOptions(temperature=0), 8, None, priority=0, n=1, limit=limit)
        self.step()

    @precondition(lambda self: self.reference.limits.max_recycling != 0)
    @rule(prompt=_PROMPTS, max_tokens=st.sampled_from([1, 1, 1, 20]), limit=_LIMITS)
    def pin(self, prompt: tuple[int, ...], max_tokens: int, limit: str | None) -> None:
        options = SequenceOptions(temperature=0)
        count = min(MAX_SEQUENCE_TOKENS - len(prompt), max_tokens)
        tokens = self.bench.run_alone(prompt, options, count)
        pinned = replace(options, max_tokens=max_tokens, is_pinned=True)
        self._submit_one(prompt, pinned, _expected_output(tokens, ()), limit)

    @precondition(lambda self: self.reference.limits.max_recycling == 0)
    @rule(prompt=_PROMPTS)
    def pin_without_prefix_cache(self, prompt: tuple[int, ...]) -> None:
        with pytest.raises(BadRequestError):
            self.core.submit(Prompt(prompt), SequenceOptions(is_pinned=True))

    @rule(sequence_id=_IDS)
    def unpin(self, sequence_id: int) -> None:
        """Unpin a pinned, live, finished, never pinned or unknown sequence."""
        self.core.unpin(sequence_id)
        self.reference.unpin(sequence_id)

    @rule(index=_IDS)
    def unpin_pinned_sequence(self, index: int) -> None:
        if ids := [
            sequence.id for sequence in self.reference.sequences.values() if sequence.is_pinned
        ]:
            self.unpin(ids[index % len(ids)])

    @rule(sequence_id=_IDS)
    def cancel(self, sequence_id: int) -> None:
        """Cancel a live, finished or unknown sequence."""
        self.core.cancel(sequence_id)
        self.reference.cancel(sequence_id)

    @rule(index=_IDS)
    def cancel_live_sequence(self, index: int) -> None:
        if live := self.reference.live():
            self.cancel(live[index % len(live)].id)

    @rule(index=_IDS)
    def pause_live_sequence(self, index: int) -> None:
        if live := self.reference.live():
            self._pause(live[index % len(live)].id, True)

    @rule(sequence_id=_IDS, is_paused=st.booleans())
    def pause_or_resume(self, sequence_id: int, is_paused: bool) -> None:
        self._pause(sequence_id, is_paused)

    @rule()
    def resume_all(self) -> None:
        for sequence in self.reference.live():
            self._pause(sequence.id, False)

    def _pause(self, sequence_id: int, is_paused: bool) -> None:
        (self.core.pause if is_paused else self.core.resume)(sequence_id)
        self.reference.pause(sequence_id, is_paused)

    @rule()
    def reset(self) -> None:
        self.core.reset()
        self.reference.reset()

    @precondition(lambda self: not self.reference.limits.has_drafts)
    @rule()
    def stop_reading(self) -> None:
        self.is_reading = False

    @rule()
    def read(self) -> None:
        self.is_reading = True
        self._check_records(self._drain())

    # ---- Steps ----

    @rule()
    def step(self) -> None:
        self.is_consistent = False
        is_alive = self.core.step()
        first, events = self.core.read_trace(self.next_event)
        assert first == self.next_event
        self.next_event += len(events)
        records = self._drain() if self.is_reading else []
        completion_tokens = {record.sequence_id: record.completion_tokens for record in records}
        self.reference.step(events, completion_tokens)
        self.counts.update(event.kind for event in events)
        admissions = [event for event in events if event.kind == "admitted"]
        self.counts["fork"] += sum(event.values[0] > 0 for event in admissions)
        assert is_alive == bool(self.reference.running or self.reference.waiting)
        self.core.check_invariants()
        if self.is_reading:
            self._check_records(records)
        self.is_consistent = True

    @rule(count=st.sampled_from([3, 10, 30, 30]))
    def step_many(self, count: int) -> None:
        for _ in range(count):
            self.step()

    @rule()
    def finish(self) -> None:
        """Without new calls, check that all sequences finish within a known number of steps."""
        for sequence in self.reference.live():
            self._pause(sequence.id, False)
        live = self.reference.live()
        tokens = sum(
            len(sequence.prompt) + sequence.expected.completion_tokens for sequence in live
        )
        max_steps = 1 + tokens * (1 + len(live))
        while self.reference.has_work:
            assert max_steps, "a sequence starves"
            max_steps -= 1
            self.step()
        assert not self.reference.live()
        self._check_records(self._drain())

    def _drain(self) -> list[Record]:
        is_readable = bool(self.poll.poll(0))
        records = self.core.drain()
        assert is_readable == bool(records), "the descriptor must be readable while records wait"
        assert len({record.sequence_id for record in records}) == len(records)
        return records

    def _check_records(self, records: Iterable[Record]) -> None:
        """Check that every token and every end was delivered, and equals those of a solo run."""
        for record in records:
            self._add_record(record)
        for sequence in self.reference.sequences.values():
            assert self.read_ids.get(sequence.id, ()) == sequence.generated_ids
            assert (sequence.id in self.ended_ids) == (sequence.finish_reason is not None)
            if sequence.finish_reason in {"stop", "length"}:
                ids = sequence.generated_ids  # A stop token has no text.
                ids = ids[:-1] if sequence.finish_reason == "stop" else ids
                text = b"".join(self.bench.vocabulary[token] for token in ids)
                assert self.read_text[sequence.id] == text.decode(errors="replace")

    def _add_record(self, record: Record) -> None:
        sequence = self.reference.sequences[record.sequence_id]
        assert sequence.id not in self.ended_ids, f"{sequence.id} has a record after its end"
        assert record.finish_reason == sequence.finish_reason
        assert record.error == (sequence.limit if record.finish_reason == "timeout" else None)
        assert record.prompt_tokens == len(sequence.prompt)
        assert record.completion_tokens == sequence.num_generated
        assert record.cached_tokens == (sequence.num_cached or 0)
        self.read_ids[sequence.id] = self.read_ids.get(sequence.id, ()) + record.token_ids
        self.read_text[sequence.id] = self.read_text.get(sequence.id, "") + record.text
        if record.finish_reason is not None:
            self.ended_ids.add(sequence.id)
            self.counts[record.finish_reason] += 1
            self.counts["pin"] += sequence.is_pinned and record.finish_reason == "length"

    @invariant()
    def statistics_match_the_reference(self) -> None:
        reference = self.reference
        statistics = self.core.statistics()
        assert statistics.num_running == len(reference.running)
        assert statistics.num_waiting == reference.num_waiting
        assert statistics.num_paused == len(reference.paused)
        assert statistics.num_pinned == len(reference.pins)
        assert statistics.total_pages == TOTAL_PAGES
        assert statistics.free_pages == reference.free_pages
        assert statistics.preemptions == reference.preemptions
        if statistics.num_running == statistics.num_recycling == statistics.num_pinned == 0:
            assert self.bench.model.free_pages() == TOTAL_PAGES, "the model leaked a page"
        limit = reference.limits.max_recycling
        assert limit < 0 or statistics.num_recycling <= limit

    def teardown(self) -> None:
        try:
            if self.is_consistent and not self.closes_early:
                self.finish()
            self.core.close()
            if self.is_consistent:
                self._check_closed()
        finally:
            self.core.release()

    def _check_closed(self) -> None:
        with pytest.raises(EngineClosedError):
            self.core.submit(Prompt([1]), SequenceOptions())
        assert not self.core.step()
        ended = {r.sequence_id for r in self.core.drain() if r.finish_reason is not None}
        assert not ended & self.ended_ids, "a sequence ended twice"
        assert ended | self.ended_ids == set(self.reference.sequences), "a sequence never ended"
        assert self.bench.model.free_pages() == TOTAL_PAGES, "the model leaked a page"


def _expected_output(tokens: tuple[int, ...], stops: tuple[int, ...]) -> ExpectedOutput:
    for index, token_id in enumerate(tokens):
        if token_id in stops:
            return ExpectedOutput(tokens[: index + 1], "stop")

    return ExpectedOutput(tokens, "length")
