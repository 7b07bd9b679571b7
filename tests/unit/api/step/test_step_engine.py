"""The engine that moves by hand: its steps, its callback, its end."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from anyio.lowlevel import checkpoint

from aiomlc import GenerationConfig, SyncMLCEngine, TextData, TokenData
from aiomlc.api.step.data import Data, Prompt, RequestStreamOutput, SingleRequestStreamOutput
from aiomlc.errors import (
    BadRequestError,
    DeadlineExceededError,
    DuplicateRequestError,
    EngineClosedError,
    EngineDeadError,
    EngineError,
    LogitsProcessorError,
    RequestFailedError,
)
from aiomlc.testing import FakeCore, fake_loader

pytestmark = pytest.mark.timeout(20)


class Told:
    """A callback that remembers."""

    def __init__(self) -> None:
        self.batches: list[list[RequestStreamOutput]] = []

    def __call__(self, outputs: list[RequestStreamOutput]) -> None:
        self.batches.append(outputs)

    def of(self, request_id: str) -> list[SingleRequestStreamOutput]:
        told = self._all_of(request_id)
        return [output for output in told if output.request_final_usage_json_str is None]

    def usages(self, request_id: str) -> list[dict[str, Any]]:
        texts = [output.request_final_usage_json_str for output in self._all_of(request_id)]
        return [json.loads(text) for text in texts if text is not None]

    def text(self, request_id: str) -> str:
        return "".join(output.delta_text for output in self.of(request_id))

    def _all_of(self, request_id: str) -> list[SingleRequestStreamOutput]:
        unpacked = [output.unpack() for batch in self.batches for output in batch]
        return [output for rid, outputs in unpacked for output in outputs if rid == request_id]


def make(core: FakeCore | None = None, told: Told | None = None, **options: Any) -> SyncMLCEngine:  # noqa: ANN401
    return SyncMLCEngine(loader=fake_loader(core, **options), request_stream_callback=told)


def add(engine: SyncMLCEngine, request_id: str, **options: Any) -> None:  # noqa: ANN401
    config = GenerationConfig(**options)
    engine.add_request(engine.create_request(request_id, TextData("Hello"), config))


def test_each_step_tells_what_every_request_gained() -> None:
    told = Told()
    with make(told=told, replies=["abc", "de"]) as engine:
        add(engine, "x")
        add(engine, "y")
        moved = [engine.step() for _ in range(5)]

    assert moved == [True] * 4 + [False]
    assert [len(batch) for batch in told.batches] == [2, 2, 3, 2]
    assert (told.text("x"), told.text("y")) == ("abc", "de")
    assert [output.finish_reason for output in told.of("y")] == [None, None, "stop"]
    assert [output.delta_token_ids for output in told.of("y")] == [[100], [101], []]


def test_the_usage_is_an_output_of_its_own_after_the_last() -> None:
    told = Told()
    with make(told=told, replies=["abc"]) as engine:
        add(engine, "x")
        while engine.step():
            pass

    last, usage = told.batches[-1]
    assert last.outputs[0].finish_reason == "stop"
    assert usage.outputs == [
        SingleRequestStreamOutput([], "", None, usage.outputs[0].request_final_usage_json_str)
    ]
    assert told.usages("x") == [
        {
            "prompt_tokens": 5,
            "completion_tokens": 3,
            "total_tokens": 8,
            "prompt_tokens_details": {"cached_tokens": 0},
        }
    ]


def test_a_request_may_arrive_between_steps() -> None:
    told = Told()
    with make(told=told, replies=["abc"]) as engine:
        add(engine, "x")
        engine.step()
        add(engine, "y")
        while engine.step():
            pass

    assert (told.text("x"), told.text("y")) == ("abc", "abc")


def test_generate_completes_prompts_of_every_form() -> None:
    core = FakeCore(["one", "two", "three"])
    with make(core) as engine:
        mixed: list[Data] = [TextData("H"), TokenData([3])]
        prompts: list[Prompt] = ["Hi", [1, 2], mixed]
        texts, logprobs = engine.generate(prompts, GenerationConfig(max_tokens=3))
        single = engine.generate("Hi")[0]
        tokens = engine.generate([1, 2])[0]
        nothing = engine.generate([])

    assert (texts, logprobs) == ([["one"], ["two"], ["thr"]], [None] * 3)
    assert (single, tokens, nothing) == ([["one"]], [["two"]], ([], []))
    assert core.prompts[1] == [1, 2]
    assert core.prompts[2][-1] == 3
    assert core.prompts[4] == [1, 2]


def test_generate_leaves_other_requests_their_callback() -> None:
    told = Told()
    with make(told=told, replies=["abc", "de"]) as engine:
        add(engine, "0")
        texts, _ = engine.generate("Hi")
        while engine.step():
            pass

    assert texts == [["de"]]
    assert told.text("0") == "abc"


def test_a_prompt_that_fails_ends_the_others_of_its_call_only() -> None:
    told = Told()
    core = FakeCore(["abc"], failures={3: "impossible"})
    with make(core, told) as engine:
        add(engine, "x")
        with pytest.raises(RequestFailedError, match="impossible"):
            engine.generate(["a", "b"])

        while engine.step():
            pass

    assert told.text("x") == "abc"
    assert core.cancelled == [2]


def test_a_failed_request_is_told_why() -> None:
    told = Told()
    with make(FakeCore(failures={1: "impossible"}), told) as engine:
        add(engine, "x")
        engine.step()

    assert told.of("x")[0].finish_reason == "error"
    assert told.of("x")[0].error == "impossible"


def test_abort_ends_a_request_at_the_next_step() -> None:
    told = Told()
    with make(told=told, replies=["abc"]) as engine:
        add(engine, "x")
        engine.step()
        engine.abort_request("x")
        engine.abort_request("nobody")
        engine.step()
        add(engine, "x")

    assert [output.finish_reason for output in told.of("x")] == [None, "abort"]
    assert len(told.usages("x")) == 1


def test_reset_ends_every_request_and_the_engine_goes_on() -> None:
    told = Told()
    core = FakeCore(["abc"])
    with make(core, told) as engine:
        add(engine, "x")
        add(engine, "y")
        engine.reset()
        running = core.statistics().num_running
        add(engine, "x")

    assert running == 0
    assert [told.of(name)[-1].finish_reason for name in "xy"] == ["abort", "abort"]


def test_a_step_without_a_callback_is_refused_in_upstreams_words() -> None:
    with make() as engine:
        add(engine, "x")
        with pytest.raises(EngineError, match="The request stream callback is not set"):
            engine.step()

        with pytest.raises(EngineError, match="The request stream callback is not set"):
            engine.generate("Hi")

        engine.reset()
        assert engine.generate("Hi")[0] == [["Hello!"]]


def test_an_id_belongs_to_one_running_request() -> None:
    with make(told=Told()) as engine:
        add(engine, "x")
        with pytest.raises(DuplicateRequestError):
            add(engine, "x")


def test_every_option_reaches_the_core() -> None:
    core = FakeCore()
    with make(core) as engine:
        engine.generate(
            "Hi",
            GenerationConfig(
                temperature=0.5,
                top_p=0.25,
                top_k=3,
                min_p=0.125,
                max_tokens=7,
                seed=11,
                stop_strs=["a"],
                stop_token_ids=[5],
            ),
        )
        engine.generate("Hi", GenerationConfig(stop_strs="end"))

    options = core.options[0]
    assert (options.temperature, options.top_p, options.top_k) == (0.5, 0.25, 3)
    assert (options.min_p, options.max_tokens, options.seed) == (0.125, 7, 11)
    assert (options.stop, options.stop_token_ids) == (("a",), (5,))
    assert (core.options[1].stop, core.options[1].max_tokens) == (("end",), None)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("n", 0, '"n" should be at least 1'),
        ("temperature", -1, '"temperature" should be non-negative'),
        ("top_p", 1.5, '"top_p" should be in range'),
        ("max_tokens", 0, "max_tokens"),
        ("top_k", -1, "top_k"),
        ("min_p", 2, "min_p"),
        ("top_logprobs", 21, '"top_logprobs" should be in range'),
        ("response_format", {"type": "xml"}, "response_format"),
    ],
)
def test_a_wrong_option_is_named(name: str, value: object, text: str) -> None:
    with pytest.raises(BadRequestError, match=text) as caught:
        GenerationConfig(**{name: value})  # type: ignore[arg-type]

    assert caught.value.param == name


@pytest.mark.parametrize("prompts", [[[]], [{"a": 1}], [[1, "a"]]])
def test_a_prompt_of_another_kind_is_refused(prompts: Any) -> None:  # noqa: ANN401
    with make() as engine, pytest.raises(BadRequestError):
        engine.generate(prompts)


def test_configs_and_prompts_must_be_as_many() -> None:
    with make() as engine, pytest.raises(BadRequestError, match="2 prompts and 1"):
        engine.generate(["a", "b"], [GenerationConfig()])


def test_death_is_raised_now_and_later() -> None:
    with make(told=Told(), replies=["abc"], dies_at_step=2) as engine:
        add(engine, "x")
        engine.step()
        with pytest.raises(EngineDeadError):
            engine.step()
        with pytest.raises(EngineDeadError):
            engine.step()
        with pytest.raises(EngineDeadError):
            add(engine, "y")


def test_terminate_frees_the_core_and_refuses_what_comes_later() -> None:
    core = FakeCore()
    engine = make(core, Told())
    add(engine, "x")

    engine.terminate()
    engine.terminate()

    assert core.is_closed
    assert core.is_released
    for use in (engine.step, engine.reset, lambda: add(engine, "y")):
        with pytest.raises(EngineClosedError):
            use()


def test_it_is_made_and_used_without_a_thread_of_its_own() -> None:
    before = set(threading.enumerate())  # Earlier tests' idle workers may be among them.

    with make(replies=["Hi"]) as engine:
        assert set(threading.enumerate()) <= before
        assert engine.generate("x")[0] == [["Hi"]]
        assert engine.metrics()["completion_tokens_sum"] == 2
        assert repr(engine) == "<SyncMLCEngine bundled model>"


async def test_it_can_be_made_while_an_event_loop_runs() -> None:
    await checkpoint()
    with make(replies=["Hi"]) as engine:
        assert engine.generate("x")[0] == [["Hi"]]


def test_text_data_is_its_text() -> None:
    assert str(TextData("a")) == "a"


def test_log_probabilities_are_json_for_each_token() -> None:
    with make(FakeCore(["ab"])) as engine:
        texts, logprobs = engine.generate("Hi", GenerationConfig(logprobs=True, top_logprobs=2))

    assert texts == [["ab"]]
    assert logprobs[0] is not None
    entries = [json.loads(text) for text in logprobs[0][0]]
    assert [entry["token"] for entry in entries] == ["a", "b"]
    assert [len(entry["top_logprobs"]) for entry in entries] == [2, 2]


def test_choices_have_texts_and_seeds_of_their_own() -> None:
    core = FakeCore(["one", "two", "three"])
    with make(core) as engine:
        texts, _ = engine.generate("Hi", GenerationConfig(n=3, seed=7))

    assert texts == [["one", "two", "three"]]
    assert [options.seed for options in core.options] == [7, 8, 9]


def test_the_callback_is_told_of_all_choices_of_a_request() -> None:
    told = Told()
    with make(FakeCore(["a", "bcd"]), told) as engine:
        request = engine.create_request("x", TextData("Hi"), GenerationConfig(n=2))
        engine.add_request(request)
        while engine.step():
            pass

        engine.add_request(engine.create_request("x", TextData("again")))

    outputs = [output for batch in told.batches for output in batch]
    assert {output.request_id for output in outputs} == {"x"}
    *gains, usage = outputs
    assert {len(output.outputs) for output in gains} == {2}
    assert len(usage.outputs) == 1
    assert told.usages("x")[0]["completion_tokens"] == 4
    assert ["".join(o.outputs[i].delta_text for o in gains) for i in (0, 1)] == ["a", "bcd"]


def test_a_model_without_grammars_says_so() -> None:
    with make() as engine, pytest.raises(BadRequestError, match="cannot be constrained"):
        engine.generate("Hi", GenerationConfig(response_format={"type": "json_object"}))


def test_a_prompts_log_probabilities_stand_beside_the_pair() -> None:
    with make(FakeCore(["ab", "c"])) as engine:
        configs = [GenerationConfig(prompt_logprobs=2, n=2), GenerationConfig()]
        answers = engine.generate(["Hey", "Hi"], configs)

    texts, logprobs = answers
    assert (texts, logprobs) == ([["ab", "c"], ["ab"]], [None, None])
    scored, unscored = answers.prompt_logprobs
    assert unscored is None
    assert scored is not None
    entries = [json.loads(text) for text in scored]
    assert [entry["token"] for entry in entries] == ["e", "y"]
    assert [len(entry["top_logprobs"]) for entry in entries] == [2, 2]


def test_a_prompts_log_probabilities_come_with_the_first_choices_first_output() -> None:
    told = Told()
    with make(FakeCore(["ab"]), told) as engine:
        add(engine, "x", prompt_logprobs=0, n=2)
        while engine.step():
            pass

    outputs = [output for batch in told.batches for output in batch]
    found = [
        (number, choice, len(gain.prompt_logprob_json_strs))
        for number, output in enumerate(outputs)
        for choice, gain in enumerate(output.outputs)
        if gain.prompt_logprob_json_strs is not None
    ]
    assert found == [(0, 0, 4)]


def test_logits_processors_see_each_token_and_their_exception_is_the_cause() -> None:
    seen: list[tuple[int, ...]] = []

    def look(token_ids: Sequence[int], logits: object) -> None:
        del logits
        seen.append(tuple(token_ids))

    def fail(token_ids: Sequence[int], logits: object) -> None:
        raise ArithmeticError("on purpose")

    told = Told()
    with make(FakeCore(["ab"]), told) as engine:
        engine.generate("Hi", GenerationConfig(logits_processors=[look]))
        assert seen[0] == tuple(b"Hi")
        with pytest.raises(LogitsProcessorError) as caught:
            engine.generate(
                ["Hi", "Ho"], [GenerationConfig(), GenerationConfig(logits_processors=[fail])]
            )

        add(engine, "x", logits_processors=[fail])
        add(engine, "y")
        while engine.step():
            pass

    assert isinstance(caught.value.__cause__, ArithmeticError)
    assert caught.value.request_id == "1"
    (end,) = told.of("x")
    assert end.finish_reason == "error"
    assert "ArithmeticError('on purpose')" in (end.error or "")
    assert told.text("y") == "ab"


@pytest.mark.parametrize("limit", ["timeout", "first_token_timeout", "inter_token_timeout"])
def test_a_time_limit_that_ends_a_prompt_is_named(limit: str) -> None:
    core = FakeCore(["Hello!"], timeouts={1: limit})
    limits: dict[str, Any] = {limit: 2.5}
    config = GenerationConfig(**limits)
    with SyncMLCEngine(loader=fake_loader(core)) as engine:
        with pytest.raises(DeadlineExceededError) as caught:
            engine.generate("a", config)

        assert engine.generate("a")[0] == [["Hello!"]]

    assert (caught.value.limit, caught.value.seconds) == (limit, 2.5)
