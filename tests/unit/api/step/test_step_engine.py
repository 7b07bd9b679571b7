"""Tests of the steps, the callback and the lifecycle of `SyncMLCEngine`."""

from __future__ import annotations

import threading

import pytest
from anyio.lowlevel import checkpoint

from aiomlc import GenerationConfig, TextData
from aiomlc.api.step.data import SingleRequestStreamOutput
from aiomlc.errors import (
    DuplicateRequestError,
    EngineClosedError,
    EngineDeadError,
    EngineError,
)
from aiomlc.testing import FakeCore
from tests.unit.api.step.step_engine_helpers import CallbackLog, add_request, make_engine

pytestmark = pytest.mark.timeout(20)


def test_each_step_passes_the_output_of_every_request_to_the_callback() -> None:
    log = CallbackLog()
    with make_engine(callback=log, replies=["abc", "de"]) as engine:
        add_request(engine, "x")
        add_request(engine, "y")
        stepped = [engine.step() for _ in range(5)]

    assert stepped == [True] * 4 + [False]
    assert [len(batch) for batch in log.batches] == [2, 2, 3, 2]
    assert (log.text("x"), log.text("y")) == ("abc", "de")
    assert [output.finish_reason for output in log.outputs("y")] == [None, None, "stop"]
    assert [output.delta_token_ids for output in log.outputs("y")] == [[100], [101], []]


def test_the_usage_is_a_separate_output_after_the_last() -> None:
    log = CallbackLog()
    with make_engine(callback=log, replies=["abc"]) as engine:
        add_request(engine, "x")
        while engine.step():
            pass

    last, usage = log.batches[-1]
    assert last.outputs[0].finish_reason == "stop"
    assert usage.outputs == [
        SingleRequestStreamOutput([], "", None, usage.outputs[0].request_final_usage_json_str)
    ]
    assert log.usages("x") == [
        {
            "prompt_tokens": 5,
            "completion_tokens": 3,
            "total_tokens": 8,
            "prompt_tokens_details": {"cached_tokens": 0},
        }
    ]


def test_a_request_may_be_added_between_steps() -> None:
    log = CallbackLog()
    with make_engine(callback=log, replies=["abc"]) as engine:
        add_request(engine, "x")
        engine.step()
        add_request(engine, "y")
        while engine.step():
            pass

    assert (log.text("x"), log.text("y")) == ("abc", "abc")


def test_the_last_output_of_a_failed_request_has_the_error() -> None:
    log = CallbackLog()
    with make_engine(FakeCore(failures={1: "impossible"}), log) as engine:
        add_request(engine, "x")
        engine.step()

    assert log.outputs("x")[0].finish_reason == "error"
    assert log.outputs("x")[0].error == "impossible"


def test_abort_ends_a_request_at_the_next_step() -> None:
    log = CallbackLog()
    with make_engine(callback=log, replies=["abc"]) as engine:
        add_request(engine, "x")
        engine.step()
        engine.abort_request("x")
        engine.abort_request("unknown")
        engine.step()
        add_request(engine, "x")

    assert [output.finish_reason for output in log.outputs("x")] == [None, "abort"]
    assert len(log.usages("x")) == 1


def test_reset_aborts_every_request_and_the_engine_continues() -> None:
    log = CallbackLog()
    core = FakeCore(["abc"])
    with make_engine(core, log) as engine:
        add_request(engine, "x")
        add_request(engine, "y")
        engine.reset()
        running = core.statistics().num_running
        add_request(engine, "x")

    assert running == 0
    assert [log.outputs(name)[-1].finish_reason for name in "xy"] == ["abort", "abort"]


def test_a_step_without_a_callback_raises_mlc_llms_message() -> None:
    with make_engine() as engine:
        add_request(engine, "x")
        with pytest.raises(EngineError, match="The request stream callback is not set"):
            engine.step()

        with pytest.raises(EngineError, match="The request stream callback is not set"):
            engine.generate("Hi")

        engine.reset()
        assert engine.generate("Hi")[0] == [["Hello!"]]


def test_the_id_of_a_running_request_is_rejected() -> None:
    with make_engine(callback=CallbackLog()) as engine:
        add_request(engine, "x")
        with pytest.raises(DuplicateRequestError):
            add_request(engine, "x")


def test_the_failure_of_the_engine_is_raised_now_and_later() -> None:
    with make_engine(callback=CallbackLog(), replies=["abc"], dies_at_step=2) as engine:
        add_request(engine, "x")
        engine.step()
        with pytest.raises(EngineDeadError):
            engine.step()
        with pytest.raises(EngineDeadError):
            engine.step()
        with pytest.raises(EngineDeadError):
            add_request(engine, "y")


def test_terminate_frees_the_core_and_later_calls_are_rejected() -> None:
    core = FakeCore()
    engine = make_engine(core, CallbackLog())
    add_request(engine, "x")

    engine.terminate()
    engine.terminate()

    assert core.is_closed
    assert core.is_released
    for call in (engine.step, engine.reset, lambda: add_request(engine, "y")):
        with pytest.raises(EngineClosedError):
            call()


def test_the_engine_starts_no_thread() -> None:
    before = set(threading.enumerate())  # Idle workers of earlier tests may be among them.

    with make_engine(replies=["Hi"]) as engine:
        assert set(threading.enumerate()) <= before
        assert engine.generate("x")[0] == [["Hi"]]
        assert engine.metrics()["completion_tokens_sum"] == 2
        assert repr(engine) == "<SyncMLCEngine bundled model>"


async def test_the_engine_can_be_created_in_a_running_event_loop() -> None:
    await checkpoint()
    with make_engine(replies=["Hi"]) as engine:
        assert engine.generate("x")[0] == [["Hi"]]


def test_str_of_text_data_is_its_text() -> None:
    assert str(TextData("a")) == "a"


def test_the_callback_receives_all_choices_of_a_request() -> None:
    log = CallbackLog()
    with make_engine(FakeCore(["a", "bcd"]), log) as engine:
        request = engine.create_request("x", TextData("Hi"), GenerationConfig(n=2))
        engine.add_request(request)
        while engine.step():
            pass

        engine.add_request(engine.create_request("x", TextData("again")))

    outputs = [output for batch in log.batches for output in batch]
    assert {output.request_id for output in outputs} == {"x"}
    *steps, usage = outputs
    assert {len(output.outputs) for output in steps} == {2}
    assert len(usage.outputs) == 1
    assert log.usages("x")[0]["completion_tokens"] == 4
    assert ["".join(o.outputs[i].delta_text for o in steps) for i in (0, 1)] == ["a", "bcd"]


def test_the_first_output_of_choice_0_has_the_prompt_logprobs() -> None:
    log = CallbackLog()
    with make_engine(FakeCore(["ab"]), log) as engine:
        add_request(engine, "x", prompt_logprobs=0, n=2)
        while engine.step():
            pass

    outputs = [output for batch in log.batches for output in batch]
    entries = [
        (step, choice, len(choice_output.prompt_logprob_json_strs))
        for step, output in enumerate(outputs)
        for choice, choice_output in enumerate(output.outputs)
        if choice_output.prompt_logprob_json_strs is not None
    ]
    assert entries == [(0, 0, 4)]
