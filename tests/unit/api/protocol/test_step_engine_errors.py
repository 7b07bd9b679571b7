"""Errors of `GenerationConfig`, `SyncMLCEngine`, `TextStreamer` and `JSONFFIEngine`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from aiomlc import GenerationConfig, JSONFFIEngine, SyncMLCEngine, TextStreamer
from aiomlc.errors import EngineError
from aiomlc.testing import FakeCore, fake_loader, fake_model
from tests.unit.api.protocol.error_cases import USER, Context, ErrorCase, check_error, rejected

pytestmark = pytest.mark.timeout(20)


def construct_generation_config(context: Context, /, **fields: Any) -> None:  # noqa: ANN401
    GenerationConfig(**fields)


def step_without_a_callback(context: Context) -> None:
    with SyncMLCEngine(loader=fake_loader()) as engine:
        engine.step()


def create_a_request_without_inputs(context: Context) -> None:
    with SyncMLCEngine(loader=fake_loader()) as engine:
        engine.create_request("one", [])


def generate_with_too_few_configs(context: Context) -> None:
    with SyncMLCEngine(loader=fake_loader()) as engine:
        engine.generate(["a", "b"], [GenerationConfig()])


def put_after_finish(context: Context) -> None:
    streamer = TextStreamer(fake_model(FakeCore()).tokenizer)
    streamer.finish()
    streamer.put([65])


def create_without_a_stream(context: Context) -> None:
    with JSONFFIEngine(loader=fake_loader()) as engine:
        engine.chat.completions.create(messages=[USER], stream=False)


ERRORS = [
    rejected(
        "n",
        partial(construct_generation_config, n=0),
        "n",
        '"n" should be at least 1',
    ),
    rejected(
        "many choices",
        partial(construct_generation_config, n=129),
        "n",
        '"n" should be at most 128, got 129',
    ),
    rejected(
        "temperature",
        partial(construct_generation_config, temperature=-0.5),
        "temperature",
        '"temperature" should be non-negative',
    ),
    rejected(
        "top_p",
        partial(construct_generation_config, top_p=1.5),
        "top_p",
        '"top_p" should be in range [0, 1]',
    ),
    *(
        rejected(
            name,
            partial(construct_generation_config, **{name: 2.5}),
            name,
            f'"{name}" should be in range [-2, 2]',
        )
        for name in ("frequency_penalty", "presence_penalty")
    ),
    rejected(
        "repetition_penalty",
        partial(construct_generation_config, repetition_penalty=0),
        "repetition_penalty",
        '"repetition_penalty" should be positive',
    ),
    rejected(
        "top_logprobs",
        partial(construct_generation_config, logprobs=True, top_logprobs=21),
        "top_logprobs",
        '"top_logprobs" should be in range [0, 20]',
    ),
    rejected(
        "top_logprobs without logprobs",
        partial(construct_generation_config, top_logprobs=2),
        "logprobs",
        '"logprobs" must be True to support "top_logprobs"',
    ),
    rejected(
        "logit_bias",
        partial(construct_generation_config, logit_bias={7: 101}),
        "logit_bias",
        '"logit_bias[7]" should be in range [-100, 100], got 101',
    ),
    rejected(
        "empty stop string",
        partial(construct_generation_config, stop_strs=["a", ""]),
        "stop_strs",
        '"stop_strs[1]" cannot be empty',
    ),
    *(
        rejected(
            f"{name} of type str",
            partial(construct_generation_config, **{name: "2"}),
            name,
            f"\"{name}\" must be {expected}, got '2'",
        )
        for name, expected in (
            ("n", "an integer"),
            ("temperature", "a number"),
            ("top_p", "a number"),
            ("max_tokens", "an integer"),
            ("frequency_penalty", "a number"),
        )
    ),
    rejected(
        "debug_config",
        partial(
            construct_generation_config, debug_config={"special_request": "query_engine_metrics"}
        ),
        "debug_config.special_request",
        "debug_config.special_request is supported in chat completions only",
    ),
    ErrorCase(
        "missing callback",
        step_without_a_callback,
        RuntimeError,
        EngineError,
        None,
        "The request stream callback is not set. Engine cannot execute.",
    ),
    rejected(
        "missing inputs",
        create_a_request_without_inputs,
        "inputs",
        "No input data is given.",
    ),
    rejected(
        "too few configs",
        generate_with_too_few_configs,
        "generation_config",
        "generation_config must have one config per prompt, got 1 for 2 prompts",
    ),
    rejected(
        "put after finish",
        put_after_finish,
        None,
        "`put` is not expected to be invoked after finish.",
    ),
    rejected(
        "JSON engine without a stream",
        create_without_a_stream,
        "stream",
        "JSONFFIEngine only support stream=True",
    ),
]


@pytest.mark.parametrize("case", ERRORS, ids=[case.name for case in ERRORS])
def test_a_step_engine_error_has_mlc_llms_class_and_message(
    case: ErrorCase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_error(case, Context(tmp_path, monkeypatch))
