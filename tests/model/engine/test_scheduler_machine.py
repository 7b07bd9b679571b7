"""Whatever is asked of the native core in whatever order, it keeps to the rules of its scheduler.

`AIOMLC_EXAMPLES=10000` tries as many histories, in some minutes.
"""

from __future__ import annotations

import os
import select
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import anyio
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from aiomlc.config import EngineConfig
from aiomlc.errors import (
    BadRequestError,
    EngineClosedError,
    EngineOverloadedError,
    PromptTooLongError,
)
from aiomlc.runtime.engine.core_protocol import Record
from aiomlc.runtime.loading.model_directory import find_model
from aiomlc.runtime.loading.open_decoder import OpenedModel, open_native
from aiomlc.runtime.native.core import NativeCore
from aiomlc.runtime.native.model import NativeModel
from aiomlc.runtime.tokenization.tokenizer import Tokenizer
from aiomlc.sampling_params import SequenceOptions
from tests.model.engine.scheduler_reference import (
    Answer,
    Limits,
    SchedulerReference,
    TracedSequence,
)

_EXAMPLES = int(os.environ.get("AIOMLC_EXAMPLES", "150"))
_BATCH = 250  # What Hypothesis remembers of its examples grows with them.
_STEPS = 30  # Of one example: what is asked, not the steps of the core.
_PAGES, _ROWS, _CHUNK = 11, 6, 32
_MAX_SEQUENCE_TOKENS = 112  # Seven pages, so that two long answers never fit.
_UNLIMITED = 1 << 20

_FAMILIES = [[(7 * i * i + 3 * i + 91 * family) % 256 for i in range(120)] for family in range(3)]
_PROMPTS = st.builds(
    lambda family, length, tail: (*_FAMILIES[family][: length - 1], tail),
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
# Of time that is over before the next step.
_NO_TIME = 1e-9
_LIMITS = st.sampled_from(
    [None] * 7 + ["timeout", "first_token_timeout", "inter_token_timeout"],
)


@dataclass(frozen=True, slots=True)
class Bench:
    """A model for the machine, and what each sequence says when it is alone with another."""

    model: NativeModel
    vocabulary: Sequence[bytes]
    alone: Callable[[tuple[int, ...], SequenceOptions, int], tuple[int, ...]]

    def open_core(self, limits: Limits) -> NativeCore:
        return _open_core(self.model, self.vocabulary, limits)


def _open_core(model: NativeModel, vocabulary: Sequence[bytes], limits: Limits) -> NativeCore:
    options = {
        "step_token_budget": limits.step_token_budget,
        "max_recycling_sequences": limits.max_recycling,
        "max_queue_size": limits.max_queue_size,
        "separate_prefill": int(limits.separate_prefill),
        "speculative_mode": int(limits.has_drafts),  # 1 is prompt_lookup.
        "draft_length": 0,
    }
    return NativeCore(model, vocabulary, options)


class Oracle:
    """Tokens of sequences that are alone with a core, each computed once."""

    def __init__(self, core: NativeCore) -> None:
        self._core = core
        self._known: dict[tuple[tuple[int, ...], SequenceOptions], tuple[int, ...]] = {}

    def __call__(
        self, prompt: tuple[int, ...], options: SequenceOptions, count: int
    ) -> tuple[int, ...]:
        """The first tokens that a prompt is answered with; no token stops it."""
        known = self._known.get((prompt, options), ())
        if len(known) < count:
            known = self._compute(prompt, replace(options, max_tokens=count))
            self._known[prompt, options] = known
        return known[:count]

    def _compute(self, prompt: tuple[int, ...], options: SequenceOptions) -> tuple[int, ...]:
        self._core.submit(prompt, options)
        while self._core.step():
            pass
        (record,) = self._core.drain()
        assert record.finish_reason == "length"
        return record.token_ids


class SchedulerMachine(RuleBasedStateMachine):
    """A core and its reference, asked for the same."""

    def __init__(self, bench: Bench, seen: Counter[str]) -> None:
        super().__init__()
        self.bench = bench
        self.seen = seen
        self.is_reading = True
        self.next_event = 0
        self.read_ids: dict[int, tuple[int, ...]] = {}
        self.read_text: dict[int, str] = {}
        self.told: set[int] = set()  # Whose end was read.
        self.is_sound = True

    @initialize(
        budget=st.sampled_from([1, 4, 16, 32, 32]),
        queue=st.sampled_from([0, 2, 8, _UNLIMITED]),
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
        limits = Limits(
            _PAGES, min(_ROWS, budget), budget, queue, recycling, has_drafts, separate_prefill
        )
        self.core = self.bench.open_core(limits)
        self.core.enable_trace()
        self.reference = SchedulerReference(limits)
        self.poll = select.poll()
        self.poll.register(self.core.wake_fd, select.POLLIN)

    # ---- What may be asked ----

    @rule(
        prompt=_PROMPTS,
        sampling=_SAMPLINGS,
        max_tokens=_MAX_TOKENS,
        stops_at=st.sampled_from([None, None, None, 0, 3, 17]),
        priority=st.sampled_from([0, 0, 0, -1, 1]),
        n=st.integers(1, 3),
        limit=_LIMITS,
    )
    def submit(
        self,
        prompt: tuple[int, ...],
        sampling: SequenceOptions,
        max_tokens: int | None,
        stops_at: int | None,
        priority: int,
        n: int,
        limit: str | None = None,
    ) -> None:
        room = _MAX_SEQUENCE_TOKENS - len(prompt)
        count = min(room, room if max_tokens is None else max_tokens)
        for choice in range(n):
            chosen = sampling.of_choice(choice)
            tokens = self.bench.alone(prompt, chosen, count)
            stops = () if stops_at is None or stops_at >= count else (tokens[stops_at],)
            options = replace(
                chosen, max_tokens=max_tokens, priority=priority, stop_token_ids=stops
            )
            self._submit_one(prompt, options, _answer(tokens, stops), limit)

    def _submit_one(
        self,
        prompt: tuple[int, ...],
        options: SequenceOptions,
        answer: Answer,
        limit: str | None = None,
    ) -> None:
        if limit is not None:
            options = replace(options, **{limit: _NO_TIME})  # type: ignore[arg-type]
        if self.reference.is_full:
            self.seen["refused"] += 1
            with pytest.raises(EngineOverloadedError):
                self.core.submit(prompt, options)
            return

        sequence_id = self.core.submit(prompt, options)
        sequence = TracedSequence(
            sequence_id, options.priority, prompt, answer, options.is_pinned, limit
        )
        self.reference.submit(sequence)

    @rule(length=st.integers(_MAX_SEQUENCE_TOKENS, 4 * _MAX_SEQUENCE_TOKENS))
    def submit_what_never_fits(self, length: int) -> None:
        with pytest.raises(PromptTooLongError):
            self.core.submit([1] * length, SequenceOptions())

    @rule(prompt=st.sampled_from([(), (-1,), (320,), (1 << 40,)]))
    def submit_what_is_no_prompt(self, prompt: tuple[int, ...]) -> None:
        with pytest.raises(BadRequestError):
            self.core.submit(prompt, SequenceOptions())

    @rule(
        prompts=st.lists(_PROMPTS, min_size=4, max_size=12),
        sampling=_SAMPLINGS,
        max_tokens=st.integers(20, 40),
    )
    def submit_a_crowd(
        self, prompts: list[tuple[int, ...]], sampling: SequenceOptions, max_tokens: int
    ) -> None:
        """The queue overflows, and what is admitted grows out of its pages."""
        for prompt in prompts:
            self.submit(prompt, sampling, max_tokens, stops_at=None, priority=0, n=1)

    @precondition(lambda self: self.reference.limits.max_recycling != 0)
    @rule(prompt=_PROMPTS, max_tokens=st.sampled_from([1, 1, 1, 20]), limit=_LIMITS)
    def pin(self, prompt: tuple[int, ...], max_tokens: int, limit: str | None) -> None:
        options = SequenceOptions(temperature=0)
        count = min(_MAX_SEQUENCE_TOKENS - len(prompt), max_tokens)
        tokens = self.bench.alone(prompt, options, count)
        pinned = replace(options, max_tokens=max_tokens, is_pinned=True)
        self._submit_one(prompt, pinned, _answer(tokens, ()), limit)

    @precondition(lambda self: self.reference.limits.max_recycling == 0)
    @rule(prompt=_PROMPTS)
    def pin_where_nothing_is_kept(self, prompt: tuple[int, ...]) -> None:
        with pytest.raises(BadRequestError):
            self.core.submit(prompt, SequenceOptions(is_pinned=True))

    @rule(sequence_id=_IDS)
    def unpin(self, sequence_id: int) -> None:
        """It may be pinned, live, never have been, or be unknown."""
        self.core.unpin(sequence_id)
        self.reference.unpin(sequence_id)

    @rule(index=_IDS)
    def unpin_one_that_was_pinned(self, index: int) -> None:
        if ids := [one.id for one in self.reference.sequences.values() if one.is_pinned]:
            self.unpin(ids[index % len(ids)])

    @rule(sequence_id=_IDS)
    def cancel(self, sequence_id: int) -> None:
        """It may live, have ended, or be unknown."""
        self.core.cancel(sequence_id)
        self.reference.cancel(sequence_id)

    @rule(index=_IDS)
    def cancel_one_that_lives(self, index: int) -> None:
        if live := self.reference.live():
            self.cancel(live[index % len(live)].id)

    @rule(index=_IDS)
    def fall_behind(self, index: int) -> None:
        if live := self.reference.live():
            self._pause(live[index % len(live)].id, True)

    @rule(sequence_id=_IDS, is_paused=st.booleans())
    def pause_or_resume(self, sequence_id: int, is_paused: bool) -> None:
        self._pause(sequence_id, is_paused)

    @rule()
    def catch_up(self) -> None:
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
        self._check_read(self._drain())

    # ---- What is done ----

    @rule()
    def step(self) -> None:
        self.is_sound = False
        is_alive = self.core.step()
        first, events = self.core.read_trace(self.next_event)
        assert first == self.next_event
        self.next_event += len(events)
        records = self._drain() if self.is_reading else []
        given = {record.sequence_id: record.completion_tokens for record in records}
        self.reference.step(events, given)
        self.seen.update(event.kind for event in events)
        self.seen["fork"] += sum(one.kind == "admitted" and one.values[0] > 0 for one in events)
        assert is_alive == bool(self.reference.running or self.reference.waiting)
        self.core.check_invariants()
        if self.is_reading:
            self._check_read(records)
        self.is_sound = True

    @rule(count=st.sampled_from([3, 10, 30, 30]))
    def step_on(self, count: int) -> None:
        for _ in range(count):
            self.step()

    @rule()
    def finish(self) -> None:
        """Once nothing new comes, everyone ends within a number of steps that is known."""
        for sequence in self.reference.live():
            self._pause(sequence.id, False)
        live = self.reference.live()
        tokens = sum(len(one.prompt) + one.answer.completion_tokens for one in live)
        left = 1 + tokens * (1 + len(live))
        while self.reference.has_work:
            assert left, "somebody starves"
            left -= 1
            self.step()
        assert not self.reference.live()
        self._check_read(self._drain())

    def _drain(self) -> list[Record]:
        is_readable = bool(self.poll.poll(0))
        records = self.core.drain()
        assert is_readable == bool(records), "the descriptor is not as the outbox"
        assert len({record.sequence_id for record in records}) == len(records)
        return records

    def _check_read(self, records: Iterable[Record]) -> None:
        """Every token and every end was told, and is what the sequence says alone."""
        for record in records:
            self._put(record)
        for sequence in self.reference.sequences.values():
            assert self.read_ids.get(sequence.id, ()) == sequence.given_ids
            assert (sequence.id in self.told) == (sequence.finish_reason is not None)
            if sequence.finish_reason in {"stop", "length"}:
                whole = b"".join(self.bench.vocabulary[one] for one in sequence.given_ids)
                assert self.read_text[sequence.id] == whole.decode(errors="replace")

    def _put(self, record: Record) -> None:
        sequence = self.reference.sequences[record.sequence_id]
        assert sequence.id not in self.told, f"{sequence.id} has a record after its end"
        assert record.finish_reason == sequence.finish_reason
        assert record.error == (sequence.limit if record.finish_reason == "timeout" else None)
        assert record.prompt_tokens == len(sequence.prompt)
        assert record.completion_tokens == sequence.num_given
        assert record.cached_tokens == (sequence.num_cached or 0)
        self.read_ids[sequence.id] = self.read_ids.get(sequence.id, ()) + record.token_ids
        self.read_text[sequence.id] = self.read_text.get(sequence.id, "") + record.text
        if record.finish_reason is not None:
            self.told.add(sequence.id)
            self.seen[record.finish_reason] += 1
            self.seen["pin"] += sequence.is_pinned and record.finish_reason == "length"

    @invariant()
    def the_counters_agree(self) -> None:
        reference = self.reference
        statistics = self.core.statistics()
        assert statistics.num_running == len(reference.running)
        assert statistics.num_waiting == reference.num_waiting
        assert statistics.num_paused == len(reference.paused)
        assert statistics.num_pinned == len(reference.pins)
        assert statistics.total_pages == _PAGES
        assert statistics.free_pages == reference.free_pages
        assert statistics.preemptions == reference.preemptions
        if statistics.num_running == statistics.num_recycling == statistics.num_pinned == 0:
            assert self.bench.model.free_pages() == _PAGES, "the model lost a page"
        kept = reference.limits.max_recycling
        assert kept < 0 or statistics.num_recycling <= kept

    def teardown(self) -> None:
        try:
            if self.is_sound and not self.closes_early:
                self.finish()
            self.core.close()
            if self.is_sound:
                self._check_closed()
        finally:
            self.core.release()

    def _check_closed(self) -> None:
        with pytest.raises(EngineClosedError):
            self.core.submit([1], SequenceOptions())
        assert not self.core.step()
        ended = {r.sequence_id for r in self.core.drain() if r.finish_reason is not None}
        assert not ended & self.told, "ended twice"
        assert ended | self.told == set(self.reference.sequences), "one never ended"
        assert self.bench.model.free_pages() == _PAGES, "the model lost a page"


def _answer(tokens: tuple[int, ...], stops: tuple[int, ...]) -> Answer:
    for index, token_id in enumerate(tokens):
        if token_id in stops:
            return Answer(tokens[:index], "stop", index + 1)

    return Answer(tokens, "length", len(tokens))


@pytest.fixture(scope="module")
def bench(tiny_directory: Callable[[str], Path]) -> Iterator[Bench]:
    directory = tiny_directory("llama")

    def open_model() -> OpenedModel:
        config = EngineConfig(
            quantization="q4f16_1",
            num_threads=1,
            max_num_sequence=_ROWS,
            max_total_sequence_length=16 * (_PAGES - 1),  # The cache adds one.
            max_single_sequence_length=_MAX_SEQUENCE_TOKENS,
            prefill_chunk_size=_CHUNK,
        )
        return anyio.run(
            open_native, find_model(directory), "auto", "local", config, lambda progress: None
        )

    opened = open_model()
    assert opened.native.free_pages() == _PAGES
    vocabulary = Tokenizer.from_file(directory / "tokenizer.json").token_bytes(opened.vocab_size)
    limits = Limits(_PAGES, _ROWS, _CHUNK, 0, 0, False)
    core = _open_core(open_model().native, vocabulary, limits)
    yield Bench(opened.native, vocabulary, Oracle(core))
    core.close()
    core.release()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("first", range(0, _EXAMPLES, _BATCH))
def test_a_core_keeps_to_the_rules_whatever_is_asked_of_it(bench: Bench, first: int) -> None:
    count = min(_BATCH, _EXAMPLES - first)
    seen: Counter[str] = Counter()

    class OnTheBench(SchedulerMachine):
        def __init__(self) -> None:
            super().__init__(bench, seen)

    run_state_machine_as_test(
        OnTheBench,
        settings=settings(
            max_examples=count,
            stateful_step_count=_STEPS,
            deadline=None,
            database=None,
            derandomize=False,  # Else all batches would be the same where CI is set.
            suppress_health_check=list(HealthCheck),
        ),
    )

    # Else the examples would show nothing.
    for kind in ("preempted", "fork", "refused", "abort", "stop", "length", "timeout", "pin"):
        assert seen[kind] > 0, f"{seen}"


def _open(machine: SchedulerMachine, recycling: int) -> None:
    machine.open(
        _CHUNK,
        _UNLIMITED,
        recycling,
        has_drafts=False,
        separate_prefill=False,
        closes_early=False,
    )


def test_pins_give_way_to_one_that_fits_nowhere_else(bench: Bench) -> None:
    machine = SchedulerMachine(bench, Counter())
    _open(machine, recycling=2)
    first, second, long = (
        tuple(family[:length]) for family, length in zip(_FAMILIES, (60, 60, 90), strict=True)
    )
    for prompt in (first, second):
        machine.pin(prompt, 1, None)
        machine.step_on(3)
    assert sorted(machine.reference.pins.values()) == [4, 4]
    machine.submit(long, SequenceOptions(temperature=0), 20, stops_at=None, priority=0, n=1)
    machine.step_on(30)

    assert list(machine.reference.pins.values()) == [4], "one was enough"
    assert machine.reference.pins_lost == 1
    machine.teardown()


def test_a_long_prompt_is_not_passed_for_ever(bench: Bench) -> None:
    machine = SchedulerMachine(bench, Counter())
    _open(machine, recycling=0)
    greedy = SequenceOptions(temperature=0)
    short, long = tuple(_FAMILIES[0][:8]), tuple(_FAMILIES[1][:111])

    def submit_short() -> None:
        machine.submit(short, greedy, max_tokens=8, stops_at=None, priority=0, n=1)

    for _ in range(5):  # So that they end one by one.
        submit_short()
        machine.step()
    machine.submit(long, greedy, max_tokens=1, stops_at=None, priority=0, n=1)
    for _ in range(80):
        submit_short()
        machine.step()

    (waiting,) = [one for one in machine.reference.sequences.values() if one.prompt == long]
    assert waiting.passed_surely == 16
    assert waiting.num_given == 1
    machine.teardown()
