"""Tests of `SyncMLCEngine.generate`."""

from __future__ import annotations

import json
import typing
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pydantic
import pytest

from aiomlc import GenerationConfig, SyncMLCEngine, TextData, TokenData
from aiomlc.api.step.data import Data, PromptInput
from aiomlc.errors import (
    BadRequestError,
    DeadlineExceededError,
    LogitsProcessorError,
    RequestFailedError,
)
from aiomlc.testing import FakeCore, fake_loader
from tests.unit.api.step.step_engine_helpers import CallbackLog, add_request, make_engine

pytestmark = pytest.mark.timeout(20)


def test_generate_completes_prompts_of_every_type() -> None:
    core = FakeCore(["one", "two", "three"])
    with make_engine(core) as engine:
        mixed: list[Data] = [TextData("H"), TokenData([3])]
        prompts: list[PromptInput] = ["Hi", [1, 2], mixed]
        texts, logprobs = engine.generate(prompts, GenerationConfig(max_tokens=3))
        single = engine.generate("Hi")[0]
        tokens = engine.generate([1, 2])[0]
        empty = engine.generate([])

    assert (texts, logprobs) == ([["one"], ["two"], ["thr"]], [None] * 3)
    assert (single, tokens, empty) == ([["one"]], [["two"]], ([], []))
    assert core.prompts[1] == [1, 2]
    assert core.prompts[2][-1] == 3
    assert core.prompts[4] == [1, 2]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (GenerationConfig(), (2, 7)),
        (GenerationConfig(stop_token_ids=None), (2, 7)),
        (GenerationConfig(stop_token_ids=[]), ()),
        (GenerationConfig(stop_token_ids=[5]), (5,)),
        (GenerationConfig(ignore_eos=True), ()),
        (GenerationConfig(debug_config={"ignore_eos": True}), ()),
    ],
)
def test_stop_token_ids_replace_those_of_the_model(
    config: GenerationConfig, expected: tuple[int, ...]
) -> None:
    core = FakeCore(["abc"])
    load_model = fake_loader(core)

    async def load(*args: Any, **options: Any) -> Any:  # noqa: ANN401
        model: Any = await load_model(*args, **options)
        return replace(model, stop_token_ids=(2, 7))

    with SyncMLCEngine(loader=load) as engine:
        engine.generate("Hi", config)

    assert core.options[0].stop_token_ids == expected


def test_the_type_hints_of_a_config_can_be_resolved() -> None:
    hints = typing.get_type_hints(GenerationConfig)

    assert typing.get_type_hints(GenerationConfig.__init__).keys() >= hints.keys()
    adapter = pydantic.TypeAdapter(GenerationConfig)
    config = adapter.validate_python({"n": 2, "stop_strs": ["a"]})
    assert config == GenerationConfig(n=2, stop_strs=["a"])
    assert adapter.validate_json(adapter.dump_json(config)) == config


def test_requests_added_before_generate_still_use_the_callback() -> None:
    log = CallbackLog()
    with make_engine(callback=log, replies=["abc", "de"]) as engine:
        add_request(engine, "0")
        texts, _ = engine.generate("Hi")
        while engine.step():
            pass

    assert texts == [["de"]]
    assert log.text("0") == "abc"


def test_a_failed_prompt_cancels_only_the_prompts_of_its_call() -> None:
    log = CallbackLog()
    core = FakeCore(["abc"], failures={3: "impossible"})
    with make_engine(core, log) as engine:
        add_request(engine, "x")
        with pytest.raises(RequestFailedError, match="impossible"):
            engine.generate(["a", "b"])

        while engine.step():
            pass

    assert log.text("x") == "abc"
    assert core.cancelled == [2]


def test_every_option_is_passed_to_the_core() -> None:
    core = FakeCore()
    with make_engine(core) as engine:
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
    ("name", "value", "message"),
    [
        ("n", 0, '"n" should be at least 1'),
        ("temperature", -1, '"temperature" should be non-negative'),
        ("top_p", 1.5, '"top_p" should be in range'),
        ("max_tokens", 0, "max_tokens"),
        ("top_k", -2, "top_k"),
        ("min_p", 2, "min_p"),
        ("top_logprobs", 21, '"top_logprobs" should be in range'),
        ("response_format", {"type": "xml"}, "response_format"),
    ],
)
def test_an_invalid_option_is_named_in_the_error(name: str, value: object, message: str) -> None:
    with pytest.raises(BadRequestError, match=message) as caught:
        GenerationConfig(**{name: value})  # type: ignore[arg-type]

    assert caught.value.param == name


@pytest.mark.parametrize("prompts", [[[]], [{"a": 1}], [[1, "a"]]])
def test_a_prompt_of_the_wrong_type_is_rejected(prompts: Any) -> None:  # noqa: ANN401
    with make_engine() as engine, pytest.raises(BadRequestError):
        engine.generate(prompts)


def test_the_number_of_configs_must_equal_the_number_of_prompts() -> None:
    with (
        make_engine() as engine,
        pytest.raises(BadRequestError, match="one config per prompt, got 1 for 2 prompts"),
    ):
        engine.generate(["a", "b"], [GenerationConfig()])


def test_generate_returns_a_json_entry_for_each_logprob() -> None:
    with make_engine(FakeCore(["ab"])) as engine:
        texts, logprobs = engine.generate("Hi", GenerationConfig(logprobs=True, top_logprobs=2))

    assert texts == [["ab"]]
    assert logprobs[0] is not None
    entries = [json.loads(text) for text in logprobs[0][0]]
    assert [entry["token"] for entry in entries] == ["a", "b"]
    assert [len(entry["top_logprobs"]) for entry in entries] == [2, 2]


def test_each_choice_has_its_own_text_and_seed() -> None:
    core = FakeCore(["one", "two", "three"])
    with make_engine(core) as engine:
        texts, _ = engine.generate("Hi", GenerationConfig(n=3, seed=7))

    assert texts == [["one", "two", "three"]]
    assert [options.seed for options in core.options] == [7, 8, 9]


def test_a_model_without_grammars_rejects_structured_output() -> None:
    with (
        make_engine() as engine,
        pytest.raises(BadRequestError, match="does not support structured output"),
    ):
        engine.generate("Hi", GenerationConfig(response_format={"type": "json_object"}))


def test_prompt_logprobs_are_an_attribute_of_the_result() -> None:
    with make_engine(FakeCore(["ab", "c"])) as engine:
        configs = [GenerationConfig(prompt_logprobs=2, n=2), GenerationConfig()]
        result = engine.generate(["Hey", "Hi"], configs)

    texts, logprobs = result
    assert (texts, logprobs) == ([["ab", "c"], ["ab"]], [None, None])
    scored, unscored = result.prompt_logprobs
    assert unscored is None
    assert scored is not None
    entries = [json.loads(text) for text in scored]
    assert [entry["token"] for entry in entries] == ["e", "y"]
    assert [len(entry["top_logprobs"]) for entry in entries] == [2, 2]


def test_the_exception_of_a_logits_processor_is_the_cause_of_the_error() -> None:
    token_ids_seen: list[tuple[int, ...]] = []

    def record(token_ids: Sequence[int], logits: object) -> None:
        del logits
        token_ids_seen.append(tuple(token_ids))

    def fail(token_ids: Sequence[int], logits: object) -> None:
        raise ArithmeticError("on purpose")

    log = CallbackLog()
    with make_engine(FakeCore(["ab"]), log) as engine:
        engine.generate("Hi", GenerationConfig(logits_processors=[record]))
        assert token_ids_seen[0] == tuple(b"Hi")
        with pytest.raises(LogitsProcessorError) as caught:
            engine.generate(
                ["Hi", "Ho"], [GenerationConfig(), GenerationConfig(logits_processors=[fail])]
            )

        add_request(engine, "x", logits_processors=[fail])
        add_request(engine, "y")
        while engine.step():
            pass

    assert isinstance(caught.value.__cause__, ArithmeticError)
    assert caught.value.request_id == "1"
    (last,) = log.outputs("x")
    assert last.finish_reason == "error"
    assert "ArithmeticError('on purpose')" in (last.error or "")
    assert log.text("y") == "ab"


@pytest.mark.parametrize("limit", ["timeout", "first_token_timeout", "inter_token_timeout"])
def test_an_exceeded_time_limit_is_named_in_the_error(limit: str) -> None:
    core = FakeCore(["Hello!"], timeouts={1: limit})
    limits: dict[str, Any] = {limit: 2.5}
    config = GenerationConfig(**limits)
    with SyncMLCEngine(loader=fake_loader(core)) as engine:
        with pytest.raises(DeadlineExceededError) as caught:
            engine.generate("a", config)

        assert engine.generate("a")[0] == [["Hello!"]]

    assert (caught.value.limit, caught.value.seconds) == (limit, 2.5)
