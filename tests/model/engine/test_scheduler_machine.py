"""Random calls of a native core must satisfy the rules of its scheduler.

`AIOMLC_EXAMPLES=10000` runs that many random histories, which takes some minutes.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from aiomlc.sampling_params import SequenceOptions
from tests.model.engine.scheduler_bench import CHUNK_SIZE, UNLIMITED, ModelBench, open_bench
from tests.model.engine.scheduler_machine import PROMPT_FAMILIES, SchedulerMachine

_NUM_EXAMPLES = int(os.environ.get("AIOMLC_EXAMPLES", "150"))
_BATCH_SIZE = 250  # Bounds the memory, because Hypothesis keeps its examples.
_CALLS_PER_EXAMPLE = 30


@pytest.fixture(scope="module")
def bench(tiny_directory: Callable[[str], Path]) -> Iterator[ModelBench]:
    with open_bench(tiny_directory("llama")) as bench:
        yield bench


@pytest.mark.timeout(900)
@pytest.mark.parametrize("first", range(0, _NUM_EXAMPLES, _BATCH_SIZE))
def test_core_satisfies_the_scheduling_rules_for_random_calls(
    bench: ModelBench, first: int
) -> None:
    count = min(_BATCH_SIZE, _NUM_EXAMPLES - first)
    counts: Counter[str] = Counter()

    class BoundMachine(SchedulerMachine):
        def __init__(self) -> None:
            super().__init__(bench, counts)

    run_state_machine_as_test(
        BoundMachine,
        settings=settings(
            max_examples=count,
            stateful_step_count=_CALLS_PER_EXAMPLE,
            deadline=None,
            database=None,
            derandomize=False,  # Otherwise all batches are equal where CI is set.
            suppress_health_check=list(HealthCheck),
        ),
    )

    # The examples must cover all of these.
    for kind in ("preempted", "fork", "rejected", "abort", "stop", "length", "timeout", "pin"):
        assert counts[kind] > 0, f"{counts}"


def _open(machine: SchedulerMachine, recycling: int) -> None:
    machine.open(
        CHUNK_SIZE,
        UNLIMITED,
        recycling,
        has_drafts=False,
        separate_prefill=False,
        closes_early=False,
    )


def test_pin_is_evicted_for_a_sequence_that_does_not_fit_otherwise(bench: ModelBench) -> None:
    machine = SchedulerMachine(bench, Counter())
    _open(machine, recycling=2)
    first, second, long = (
        tuple(family[:length]) for family, length in zip(PROMPT_FAMILIES, (60, 60, 90), strict=True)
    )
    for prompt in (first, second):
        machine.pin(prompt, 1, None)
        machine.step_many(3)
    assert sorted(machine.reference.pins.values()) == [4, 4]
    machine.submit(long, SequenceOptions(temperature=0), 20, stop_index=None, priority=0, n=1)
    machine.step_many(30)

    assert list(machine.reference.pins.values()) == [4], "evicting one pin was enough"
    assert machine.reference.num_evicted_pins == 1
    machine.teardown()


def test_long_prompt_is_bypassed_a_bounded_number_of_times(bench: ModelBench) -> None:
    machine = SchedulerMachine(bench, Counter())
    _open(machine, recycling=0)
    greedy = SequenceOptions(temperature=0)
    short, long = tuple(PROMPT_FAMILIES[0][:8]), tuple(PROMPT_FAMILIES[1][:111])

    def submit_short() -> None:
        machine.submit(short, greedy, max_tokens=8, stop_index=None, priority=0, n=1)

    for _ in range(5):  # Staggered, so that they end one by one.
        submit_short()
        machine.step()
    machine.submit(long, greedy, max_tokens=1, stop_index=None, priority=0, n=1)
    for _ in range(80):
        submit_short()
        machine.step()

    sequences = machine.reference.sequences.values()
    (waiting,) = [sequence for sequence in sequences if sequence.prompt == long]
    assert waiting.min_times_bypassed == 16
    assert waiting.num_generated == 1
    machine.teardown()


def test_tokens_computed_again_after_preemption_do_not_hold_up_decodes(bench: ModelBench) -> None:
    machine = SchedulerMachine(bench, Counter())
    machine.open(4, 2, recycling=0, has_drafts=False, separate_prefill=True, closes_early=False)
    prompts = [(*PROMPT_FAMILIES[0][: length - 1], 3) for length in (1, 1, 1, 60, 1)]
    greedy = SequenceOptions(temperature=0)
    machine.submit_many(max_tokens=23, prompts=prompts, sampling=greedy, stop_index=None)
    machine.finish()

    assert machine.reference.preemptions > 0
    machine.teardown()
