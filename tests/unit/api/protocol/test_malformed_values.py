"""What no request may have: halves of surrogate pairs, nesting without an end, other types."""

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
from aiomlc.runtime.output_formats.tool_history import write_tool_calls
from aiomlc.testing import FakeCore, FakeEncoder, fake_loader, fake_model
from aiomlc.validation.json_values import find_invalid

pytestmark = pytest.mark.timeout(20)
HALF = "a\ud800"
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


def schema_of(schema: object) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}


SCHEMA = "response_format.json_schema.schema"
CHATS: list[tuple[dict[str, Any], str]] = [
    ({"messages": [USER, {"role": "user", "content": HALF}]}, "messages[1].content"),
    ({"messages": iter([{"role": "user", "content": HALF}])}, "messages[0].content"),
    (
        {"messages": [USER, ChatCompletionMessage(content=HALF), USER]},
        "messages[1].content",
    ),
    (
        {"messages": [{"role": "user", "content": [{"type": "text", "text": HALF}]}]},
        "messages[0].content[0].text",
    ),
    (
        {"messages": [{"role": "user", "content": [{"type": nested(3000)}]}]},
        "messages",
    ),
    ({"messages": [USER, call("[" * 100_000)]}, "messages"),
    ({"messages": [USER, call('{"a": ' * 500 + "1" + "}" * 500)]}, "messages"),
    ({"messages": [USER, call(r'{"a": "\ud800"}')]}, "messages"),
    ({"messages": [USER, call("{")]}, "messages"),
    ({"model": HALF}, "model"),
    ({"user": HALF}, "user"),
    ({"stop": [HALF]}, "stop[0]"),
    ({"request_id": HALF}, "request_id"),
    ({"metadata": {HALF: "1"}}, "metadata"),
    ({"extra_body": {"model": HALF}}, "model"),
    ({"extra_body": {HALF: 1}}, r"a\ud800"),
    ({"tools": tool(description=HALF)}, "tools[0].function.description"),
    ({"tools": tool(parameters=nested(3000, name="items"))}, "tools"),
    ({"tools": tool(parameters={"enum": {1, 2}})}, "tools[0].function.parameters"),
    ({"tools": iter(tool(parameters={"a": {1j: 2}}))}, "tools[0].function.parameters"),
    ({"chat_template_kwargs": {"a": HALF}}, "chat_template_kwargs.a"),
    ({"chat_template_kwargs": {"a": object()}}, "chat_template_kwargs"),
    ({"response_format": schema_of(nested(3000, name="items"))}, "response_format"),
    ({"response_format": schema_of({"enum": {1, 2}})}, SCHEMA),
    ({"response_format": schema_of("[" * 100_000)}, SCHEMA),
    ({"response_format": schema_of('{"items": ' * 500 + "1" + "}" * 500)}, SCHEMA),
    ({"response_format": schema_of(r'{"const": "\ud800"}')}, SCHEMA),
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
    ({"logit_bias": {10**5000: 1.0}}, "logit_bias"),
]


@pytest.fixture(scope="module")
def engine() -> Iterator[MLCEngine]:
    with MLCEngine(loader=fake_loader(FakeCore())) as engine:
        yield engine


def refused(ask: Callable[[], object]) -> str | None:
    """The field that is named."""
    with pytest.raises(BadRequestError) as caught:
        ask()

    text = str(caught.value)
    assert text.isascii()
    assert caught.value.param is None or caught.value.param in text
    return caught.value.param


@pytest.mark.parametrize(("fields", "param"), CHATS, ids=range(len(CHATS)))
def test_a_chat_names_the_field(engine: MLCEngine, fields: dict[str, Any], param: str) -> None:
    create = engine.chat.completions.create

    assert refused(lambda: create(**{"messages": [USER], **fields})) == param


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": HALF}, "prompt"),
        ({"prompt": ["a", HALF]}, "prompt[1]"),
        ({"prompt": "a", "suffix": HALF}, "suffix"),
        ({"prompt": nested(3000)}, "prompt"),
    ],
)
def test_a_completion_names_the_field(
    engine: MLCEngine, fields: dict[str, Any], param: str
) -> None:
    assert refused(lambda: engine.completions.create(**fields)) == param


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": HALF}, "input"),
        ({"input": [{"role": "user", "content": HALF}]}, "input[0].content"),
        ({"input": "a", "instructions": HALF}, "instructions"),
        ({"input": nested(3000)}, "input"),
        (
            {"input": "a", "tools": [{"type": "function", "name": "f", "parameters": {"x": {1}}}]},
            "tools[0].parameters",
        ),
    ],
)
def test_a_response_names_the_field(engine: MLCEngine, fields: dict[str, Any], param: str) -> None:
    assert refused(lambda: engine.responses.create(**fields)) == param


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": HALF}, "input"),
        ({"input": ["a", HALF]}, "input[1]"),
        ({"input": "a", "user": HALF}, "user"),
        ({"input": [10**5000]}, "input[0]"),
        ({"input": "a", "dimensions": 10**5000}, "dimensions"),
        ({"input": nested(3000)}, "input"),
    ],
)
def test_embeddings_name_the_field(fields: dict[str, Any], param: str) -> None:
    with MLCEngine(loader=fake_loader(FakeEncoder())) as engine:
        assert refused(lambda: engine.embeddings.create(**fields)) == param


def test_streams_of_tokens_and_pins_name_the_prompt(engine: MLCEngine) -> None:
    assert refused(lambda: engine.generate(HALF)) == "prompt"
    assert refused(lambda: engine.pin_prefix(prompt=HALF)) == "prompt"
    assert refused(lambda: engine.tokenizer.encode(HALF)) == "prompt"


def test_the_engine_of_steps_names_the_prompt_and_the_stop_strings() -> None:
    engine = SyncMLCEngine(loader=fake_loader(FakeCore()))

    assert refused(lambda: engine.generate([HALF])) == "prompt"
    assert refused(lambda: GenerationConfig(stop_strs=[HALF])) == "stop_strs"
    assert refused(lambda: GenerationConfig(priority=2**63)) == "priority"
    engine.terminate()


def test_a_configuration_of_endless_json_is_refused() -> None:
    assert refused(lambda: EngineConfig.from_json("[" * 100_000)) is None


async def test_what_is_not_ascii_is_text_all_the_same() -> None:
    said = "naïve 漢字 😀"
    core = FakeCore(["Hi!"])
    schema = {"const": said, **nested(20, name="items")}
    async with AsyncMLCEngine(loader=fake_loader(core)) as engine:
        await engine.chat.completions.create(
            messages=[{"role": "user", "content": said}],
            tools=tool(description=said, parameters=schema),
            user=said,
        )

    assert said in bytes(core.prompts[0]).decode()


@pytest.mark.parametrize("arguments", ["1", "[]", "null", '"a"'])
def test_a_call_of_a_history_is_written_with_an_object_only(arguments: str) -> None:
    tool_format = fake_model(FakeCore()).tool_format
    assert tool_format is not None

    assert (
        refused(lambda: write_tool_calls(tool_format, call(arguments)["tool_calls"])) == "messages"
    )


def test_a_value_that_contains_itself_is_too_deep() -> None:
    value: dict[str, Any] = {}
    value["a"] = [value]

    fault = find_invalid(value)

    assert fault is not None
    assert "nested deeper" in fault.reason
