"""MLC LLM's `debug_config`, and the parameters that `mock://echo` reports."""

from __future__ import annotations

from typing import Any

import pytest

from aiomlc import (
    AsyncMLCEngine,
    BadRequestError,
    DebugConfig,
    EngineMetrics,
    GenerationConfig,
    MLCEngine,
    SyncMLCEngine,
)
from aiomlc.testing import FakeCore, fake_loader
from tests.unit.api.chat.serving import HELLO, serve

pytestmark = pytest.mark.timeout(20)
WITH_USAGE: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
METRICS: dict[str, Any] = {"debug_config": {"special_request": "query_engine_metrics"}}


@pytest.mark.parametrize(
    "config", [{"ignore_eos": True}, DebugConfig(ignore_eos=True), {"ignore_eos": True, "x": None}]
)
async def test_ignore_eos_is_that_of_the_request(config: Any) -> None:  # noqa: ANN401
    core = FakeCore()
    async with serve(core) as engine:
        if isinstance(config, dict) and "x" in config:
            with pytest.raises(BadRequestError, match=r"debug_config.x: unknown field"):
                await engine.completions.create(prompt="a", extra_body={"debug_config": config})
            return

        await engine.chat.completions.create(messages=HELLO, extra_body={"debug_config": config})
        await engine.completions.create(prompt="a", extra_body={"debug_config": config})

    assert [options.ignore_eos for options in core.options] == [True, True]


async def test_an_empty_debug_config_has_no_effect() -> None:
    core = FakeCore()
    async with serve(core) as engine:
        await engine.chat.completions.create(messages=HELLO)
        await engine.chat.completions.create(messages=HELLO, extra_body={"debug_config": {}})
        await engine.chat.completions.create(
            messages=HELLO,
            extra_body={"debug_config": DebugConfig(grammar_execution_mode="constraint")},
        )

    assert core.options[0] == core.options[1] == core.options[2]


async def test_a_pinned_system_prompt_stays_in_the_prefix_cache() -> None:
    core = FakeCore()
    config = {"debug_config": {"pinned_system_prompt": True}}
    async with serve(core) as engine:
        await engine.completions.create(prompt="Be brief.", max_tokens=1, extra_body=config)

        assert core.pinned == {1}


def test_the_step_engine_pins_a_sequence() -> None:
    core = FakeCore()
    with SyncMLCEngine(loader=fake_loader(core)) as engine:
        config = GenerationConfig(debug_config=DebugConfig(pinned_system_prompt=True))
        engine.generate("Be brief.", config)

        assert core.pinned == {1}


async def test_a_special_request_returns_the_metrics() -> None:
    async with serve(FakeCore(["abc"])) as engine:
        await engine.chat.completions.create(messages=HELLO)
        # The message of MLC LLM's own query has no content.
        stream = engine.chat.completions.create(
            messages=[{"role": "user", "context": ""}],
            extra_body=METRICS,
            **WITH_USAGE,
        )
        chunks = [chunk async for chunk in await stream]
        expected = await engine.metrics()

    (chunk,) = chunks
    assert chunk.choices == []
    assert chunk.usage is not None
    assert chunk.usage.extra == expected.metrics
    text = EngineMetrics(chunk.usage.extra).prometheus_text()
    assert "completion_tokens_sum 3.0\n" in text


@pytest.mark.parametrize(
    ("config", "options", "message"),
    [
        (METRICS["debug_config"], {}, "DebugConfig.special_request requires stream=True"),
        (
            METRICS["debug_config"],
            {"stream": True},
            "DebugConfig.special_request requires include_usage in stream_options",
        ),
        ({"special_request": "x"}, WITH_USAGE, "debug_config.special_request"),
        ({"disagg_config": {}}, {}, "debug_config.disagg_config is not supported yet"),
        ({"ignore_eos": 1}, {}, "debug_config.ignore_eos"),
    ],
)
async def test_an_invalid_debug_config_is_rejected(
    config: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    async with serve(FakeCore()) as engine:
        with pytest.raises(BadRequestError, match=message) as caught:
            await engine.chat.completions.create(
                messages=HELLO, extra_body={"debug_config": config}, **options
            )

    assert (caught.value.param or "").startswith("debug_config")


async def test_a_special_request_needs_a_chat() -> None:
    async with serve(FakeCore()) as engine:
        with pytest.raises(BadRequestError, match="in chat completions only"):
            await engine.completions.create(prompt="a", extra_body=METRICS, **WITH_USAGE)

    with pytest.raises(BadRequestError, match="in chat completions only"):
        GenerationConfig(debug_config=METRICS["debug_config"])


def test_the_echo_model_reports_the_parameters_of_a_chat() -> None:
    sampling: dict[str, Any] = {"top_p": 0.6, "temperature": 0.9, "frequency_penalty": 0.1}
    parameters = {**sampling, "n": 2}
    with MLCEngine(model_lib="mock://echo") as engine:
        answer = engine.chat.completions.create(
            messages=HELLO,
            response_format={"type": "json_object", "schema": '{"type": "object"}'},
            **parameters,
        )

    assert answer.usage is not None
    extra = answer.usage.extra or {}
    assert extra.items() >= parameters.items()
    assert extra["response_format"] == {"type": "json_object", "schema": {"type": "object"}}
    assert extra["max_tokens"] == -1


async def test_other_models_report_no_parameters() -> None:
    async with AsyncMLCEngine(loader=fake_loader()) as engine:
        answer = await engine.chat.completions.create(messages=HELLO, top_p=0.5)

    assert answer.usage is not None
    assert "top_p" not in (answer.usage.extra or {})
