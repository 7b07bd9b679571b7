"""Tests that the test doubles have the contract of the classes that they replace."""

from __future__ import annotations

import select

import pytest

from aiomlc import AsyncMLCEngine
from aiomlc.errors import EngineClosedError, EngineDeadError
from aiomlc.runtime.engine.prompt import Prompt
from aiomlc.sampling_params import SequenceOptions
from aiomlc.testing import FakeCore, fake_loader, unread


def is_readable(core: FakeCore) -> bool:
    return bool(select.select([core.wake_fd], [], [], 0)[0])


def test_descriptor_is_readable_while_records_wait() -> None:
    core = FakeCore(["abc"])
    core.submit(Prompt([1]), SequenceOptions())
    before = is_readable(core)
    core.step()
    core.step()
    during = is_readable(core)
    records = core.drain()

    assert (before, during, is_readable(core)) == (False, True, False)
    assert [record.text for record in records] == ["a", "b"]
    assert core.drain() == []


def test_last_record_has_the_token_counts() -> None:
    core = FakeCore(["ab"])
    core.submit(Prompt([1, 2, 3]), SequenceOptions())
    while core.step():
        pass

    last = core.drain()[-1]

    assert (last.finish_reason, last.prompt_tokens, last.completion_tokens) == ("stop", 3, 2)


def test_logprobs_are_generated_only_if_requested() -> None:
    core = FakeCore(["a"])
    core.submit(Prompt([1]), SequenceOptions())
    core.submit(Prompt([1]), SequenceOptions(top_logprobs=3))
    core.step()

    plain, scored = core.drain()

    assert plain.logprobs == ()
    assert [token.token_id for token in scored.logprobs] == list(scored.token_ids)
    assert [token_id for token_id, _ in scored.logprobs[0].top] == [97, 98, 99]


def test_cancelled_sequence_ends_with_abort_and_others_continue() -> None:
    core = FakeCore(["abc"])
    core.submit(Prompt([1]), SequenceOptions())
    core.submit(Prompt([1]), SequenceOptions())
    core.cancel(1)
    core.cancel(99)
    core.step()

    assert [(r.sequence_id, r.finish_reason) for r in core.drain()] == [(1, "abort"), (2, None)]
    assert core.statistics().free_pages == core.statistics().total_pages - 1


def test_scripted_failures_occur_at_their_step() -> None:
    core = FakeCore(["abc"], failures={2: "no"}, dies_at_step=2)
    core.submit(Prompt([1]), SequenceOptions())
    core.submit(Prompt([1]), SequenceOptions())
    core.step()

    assert [(r.finish_reason, r.error) for r in core.drain()] == [(None, None), ("error", "no")]
    with pytest.raises(EngineDeadError):
        core.step()


def test_stop_before_run_ends_run_immediately() -> None:
    core = FakeCore(["abc"])
    core.submit(Prompt([1]), SequenceOptions())
    core.stop()
    core.run()

    assert core.statistics().steps == 0


def test_closed_core_rejects_prompts() -> None:
    core = FakeCore()
    core.close()

    with pytest.raises(EngineClosedError):
        core.submit(Prompt([1]), SequenceOptions())


async def test_unread_keeps_its_request_open_until_the_scope_ends() -> None:
    core = FakeCore(["a reply"], hand_stepped=True)
    async with AsyncMLCEngine(loader=fake_loader(core)) as engine:
        async with unread(engine, [{"role": "user", "content": "Hello"}], max_tokens=5):
            assert engine.statistics().num_running == 1

        assert core.cancelled == [1]
