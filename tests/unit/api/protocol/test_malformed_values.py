"""Values that no request may have: lone surrogates, deep nesting, huge integers, non-JSON types."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from aiomlc import (
    AsyncMLCEngine,
    BadRequestError,
    EngineConfig,
    GenerationConfig,
    MLCEngine,
    SyncMLCEngine,
)
from aiomlc.api.protocol.chat import ChatCompletionMessage
from aiomlc.runtime.output_formats.tool_history import render_tool_calls
from aiomlc.testing import FakeCore, FakeEncoder, fake_loader, fake_model
from aiomlc.validation.json_values import InvalidValueError, to_plain
from tests.unit.api.protocol.wrong_values import has_pydantics_words

pytestmark = pytest.mark.timeout(20)
LONE_SURROGATE = "a\ud800"
USER = {"role": "user", "content": "Hi"}


def nested(depth: int, *, name: str | None = None) -> Any:  # noqa: ANN401
    value: object = 1
    for _ in range(depth):
        value = [value] if name is None else {name: value}

    return value


def call(arguments: str) -> dict[str, Any]:
    function = {"name": "f", "arguments": arguments}
    return {
        "role": "assistant",
        "tool_calls": [{"id": "c", "type": "function", "function": function}],
    }


def tool(**fields: object) -> list[dict[str, Any]]:
    return [{"type": "function", "function": {"name": "f", **fields}}]


def schema_format(schema: object) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}


SCHEMA = "response_format.json_schema.schema"
CHAT_REQUESTS: list[tuple[dict[str, Any], str]] = [
    ({"messages": [USER, {"role": "user", "content": LONE_SURROGATE}]}, "messages[1].content"),
    ({"messages": iter([{"role": "user", "content": LONE_SURROGATE}])}, "messages[0].content"),
    (
        {"messages": [USER, ChatCompletionMessage(content=LONE_SURROGATE), USER]},
        "messages[1].content",
    ),
    (
        {"messages": [{"role": "user", "content": [{"type": "text", "text": LONE_SURROGATE}]}]},
        "messages[0].content[0].text",
    ),
    (
        {"messages": [{"role": "user", "content": [{"type": nested(3000)}]}]},
        "messages",
    ),
    ({"model": LONE_SURROGATE}, "model"),
    ({"user": LONE_SURROGATE}, "user"),
    ({"stop": [LONE_SURROGATE]}, "stop[0]"),
    ({"request_id": LONE_SURROGATE}, "request_id"),
    ({"metadata": {LONE_SURROGATE: "1"}}, "metadata"),
    ({"extra_body": {"model": LONE_SURROGATE}}, "extra_body.model"),
    ({"extra_body": {LONE_SURROGATE: 1}}, "extra_body"),
    ({"tools": tool(description=LONE_SURROGATE)}, "tools[0].function.description"),
    ({"tools": tool(parameters=nested(3000, name="items"))}, "tools"),
    ({"tools": tool(parameters={"enum": {1, 2}})}, "tools[0].function.parameters"),
    ({"tools": iter(tool(parameters={"a": {1j: 2}}))}, "tools[0].function.parameters"),
    ({"chat_template_kwargs": {"a": LONE_SURROGATE}}, "chat_template_kwargs.a"),
    ({"chat_template_kwargs": {"a": object()}}, "chat_template_kwargs"),
    ({"response_format": schema_format(nested(3000, name="items"))}, "response_format"),
    ({"response_format": schema_format({"enum": {1, 2}})}, SCHEMA),
    ({"response_format": schema_format("[" * 100_000)}, SCHEMA),
    ({"response_format": schema_format('{"items": ' * 500 + "1" + "}" * 500)}, SCHEMA),
    ({"response_format": schema_format(r'{"const": "\ud800"}')}, SCHEMA),
    ({"response_format": {"type": nested(3000)}}, "response_format"),
    ({"seed": 10**5000}, "seed"),
    ({"max_tokens": -(10**5000)}, "max_tokens"),
    ({"max_tokens": 10**5000}, "max_tokens"),
    ({"max_tokens": 2**200}, "max_tokens"),
    ({"messages": [{"role": [10**5000]}]}, "messages[0].role[0]"),
    ({"messages": [{"role": [1, -(10**5000)]}]}, "messages[0].role[1]"),
    ({"max_completion_tokens": 2**63}, "max_completion_tokens"),
    ({"min_tokens": 2**63}, "min_tokens"),
    ({"top_k": 2**63}, "top_k"),
    ({"priority": -(2**63) - 1}, "priority"),
    ({"stop_token_ids": [2**63]}, "stop_token_ids[0]"),
    ({"stop_token_ids": [1, 2**31]}, "stop_token_ids[1]"),
    ({"stop_token_ids": [-1]}, "stop_token_ids[0]"),
    ({"logit_bias": {10**5000: 1.0}}, "logit_bias"),
]


@pytest.fixture(scope="module")
def engine() -> Iterator[MLCEngine]:
    with MLCEngine(loader=fake_loader(FakeCore())) as engine:
        yield engine


def rejected_param(call_api: Callable[[], object]) -> str | None:
    """Return the `param` of the BadRequestError that a call raises."""
    with pytest.raises(BadRequestError) as caught:
        call_api()

    text = str(caught.value)
    assert text.isascii()
    assert not has_pydantics_words(text)
    assert caught.value.param is None or caught.value.param in text
    return caught.value.param


@pytest.mark.parametrize(("fields", "param"), CHAT_REQUESTS, ids=range(len(CHAT_REQUESTS)))
def test_a_chat_request_names_the_field(
    engine: MLCEngine, fields: dict[str, Any], param: str
) -> None:
    create = engine.chat.completions.create

    assert rejected_param(lambda: create(**{"messages": [USER], **fields})) == param


@pytest.mark.parametrize("arguments", ["{", "[" * 150, r'{"a": "\ud800"}', "[" * 150 + "]" * 150])
def test_a_chat_request_may_have_a_past_call_with_invalid_arguments(
    engine: MLCEngine, arguments: str
) -> None:
    completion = engine.chat.completions.create(messages=[USER, call(arguments)])

    assert completion.choices[0].finish_reason == "stop"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": LONE_SURROGATE}, "prompt"),
        ({"prompt": ["a", LONE_SURROGATE]}, "prompt[1]"),
        ({"prompt": "a", "suffix": LONE_SURROGATE}, "suffix"),
        ({"prompt": nested(3000)}, "prompt"),
    ],
)
def test_a_completion_request_names_the_field(
    engine: MLCEngine, fields: dict[str, Any], param: str
) -> None:
    assert rejected_param(lambda: engine.completions.create(**fields)) == param


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": LONE_SURROGATE}, "input"),
        ({"input": [{"role": "user", "content": LONE_SURROGATE}]}, "input[0].content"),
        ({"input": "a", "instructions": LONE_SURROGATE}, "instructions"),
        ({"input": nested(3000)}, "input"),
        (
            {"input": "a", "tools": [{"type": "function", "name": "f", "parameters": {"x": {1}}}]},
            "tools[0].parameters",
        ),
    ],
)
def test_a_response_request_names_the_field(
    engine: MLCEngine, fields: dict[str, Any], param: str
) -> None:
    assert rejected_param(lambda: engine.responses.create(**fields)) == param


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": LONE_SURROGATE}, "input"),
        ({"input": ["a", LONE_SURROGATE]}, "input[1]"),
        ({"input": "a", "user": LONE_SURROGATE}, "user"),
        ({"input": [10**5000]}, "input[0]"),
        ({"input": "a", "dimensions": 10**5000}, "dimensions"),
        ({"input": nested(3000)}, "input"),
    ],
)
def test_an_embedding_request_names_the_field(fields: dict[str, Any], param: str) -> None:
    with MLCEngine(loader=fake_loader(FakeEncoder())) as engine:
        assert rejected_param(lambda: engine.embeddings.create(**fields)) == param


def test_generate_and_pin_prefix_and_encode_name_the_prompt(engine: MLCEngine) -> None:
    assert rejected_param(lambda: engine.generate(LONE_SURROGATE)) == "prompt"
    assert rejected_param(lambda: engine.pin_prefix(prompt=LONE_SURROGATE)) == "prompt"
    assert rejected_param(lambda: engine.tokenizer.encode(LONE_SURROGATE)) == "prompt"


def test_the_step_engine_names_the_field() -> None:
    engine = SyncMLCEngine(loader=fake_loader(FakeCore()))

    assert rejected_param(lambda: engine.generate([LONE_SURROGATE])) == "prompt"
    assert rejected_param(lambda: GenerationConfig(stop_strs=[LONE_SURROGATE])) == "stop_strs"
    assert rejected_param(lambda: GenerationConfig(priority=2**63)) == "priority"
    engine.terminate()


def test_a_deeply_nested_json_config_is_rejected() -> None:
    assert rejected_param(lambda: EngineConfig.from_json("[" * 100_000)) is None


async def test_non_ascii_text_is_accepted() -> None:
    text = "naïve 漢字 😀"
    core = FakeCore(["Hi!"])
    schema = {"const": text, "default": nested(20, name="items")}
    async with AsyncMLCEngine(loader=fake_loader(core)) as engine:
        await engine.chat.completions.create(
            messages=[{"role": "user", "content": text}],
            tools=tool(description=text, parameters=schema),
            user=text,
        )

    assert text in bytes(core.prompts[0]).decode()


@pytest.mark.parametrize("arguments", ["1", "[]", '"a"'])
def test_tool_call_arguments_in_the_history_must_be_an_object(arguments: str) -> None:
    tool_format = fake_model(FakeCore()).tool_format
    assert tool_format is not None

    assert (
        rejected_param(lambda: render_tool_calls(tool_format, call(arguments)["tool_calls"]))
        == "messages"
    )


def test_a_recursive_value_is_too_deep() -> None:
    value: dict[str, Any] = {}
    value["a"] = [value]

    with pytest.raises(InvalidValueError, match="nested deeper"):
        to_plain(value)
