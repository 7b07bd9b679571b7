"""Tests of the grammar that a chat's completion must follow."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from aiomlc import AsyncMLCEngine, ChatCompletion
from aiomlc.api.generation.structured_output import output_grammar
from aiomlc.api.protocol.chat_request import parse_chat_request
from aiomlc.errors import BadRequestError
from aiomlc.runtime.grammar.cache import GrammarCache
from aiomlc.runtime.grammar.composition import prepend_reasoning
from aiomlc.runtime.grammar.grammar import Grammar, json_grammar
from aiomlc.runtime.loading.loaded_model import LoadedModel
from aiomlc.runtime.output_formats.tool_format import TOOL_FORMATS, ToolFormat
from aiomlc.runtime.output_formats.tool_syntax.syntax import HistoryCall
from aiomlc.testing import FakeCore, fake_model
from tests.unit.grammar_oracle import allows
from tests.unit.runtime.grammar.counting_compiler import CountingCompiler

pytestmark = pytest.mark.timeout(20)
HELLO = [{"role": "user", "content": "Hello"}]
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
ADD = {"type": "function", "function": {"name": "add", "parameters": SCHEMA}}
STOP = {"type": "function", "function": {"name": "stop"}}
STRICT = {"type": "function", "function": {"name": "add", "parameters": SCHEMA, "strict": True}}


def grammar_of(tool_format: str = "hermes", **fields: Any) -> Grammar | None:  # noqa: ANN401
    formats = {item.name: item for item in TOOL_FORMATS}
    model = replace(fake_model(FakeCore()), tool_format=formats[tool_format])
    return output_grammar(parse_chat_request({"messages": HELLO, **fields}), model).grammar


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"response_format": None},
        {"response_format": {"type": "text"}},
        {"tools": [ADD]},
        {"tools": [ADD], "parallel_tool_calls": True},
        {"tools": [STRICT], "tool_choice": "none"},
    ],
)
def test_requests_without_constraints_have_no_grammar(fields: dict[str, Any]) -> None:
    assert grammar_of(**fields) is None


@pytest.mark.parametrize(
    ("response_format", "schema"),
    [
        ({"type": "json_object"}, {"type": "object"}),
        ({"type": "json_object", "schema": json.dumps(SCHEMA)}, SCHEMA),
        ({"type": "json_object", "schema": SCHEMA}, SCHEMA),
        ({"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}, SCHEMA),
        ({"type": "json_schema", "json_schema": {"name": "x"}}, {"type": "object"}),
        ({"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}, {}),
        ({"type": "json_schema", "json_schema": {"name": "x", "schema": True}}, {}),
        ({"type": "json_schema", "json_schema": {"name": "x", "schema": "true"}}, {}),
        ({"type": "json_object", "schema": {}}, {"type": "object"}),
    ],
)
def test_json_formats_have_the_grammar_of_their_schema(
    response_format: dict[str, Any], schema: dict[str, Any]
) -> None:
    assert grammar_of(response_format=response_format) == json_grammar(schema)


@pytest.mark.parametrize("text", ["5", "null", '"a"', "[true]", "{}"])
def test_an_empty_schema_means_any_value(text: str) -> None:
    grammar = grammar_of(
        response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}
    )

    assert grammar is not None
    assert allows(grammar, text)


@pytest.mark.parametrize("syntax", ["regex", "lark"])
def test_a_grammar_format_is_passed_to_the_compiler(syntax: str) -> None:
    response_format = {"type": "grammar", "syntax": syntax, "definition": "a+"}

    grammar = grammar_of(response_format=response_format)

    assert grammar is not None
    assert (grammar.kind, grammar.source) == (syntax, "a+")


@pytest.mark.parametrize(
    ("response_format", "param"),
    [
        ({"type": "xml"}, "response_format"),
        ({"type": "json_schema"}, "response_format.json_schema"),
        ({"type": "json_object", "schema": "{"}, "response_format.schema"),
        ({"type": "grammar", "syntax": "ebnf", "definition": ""}, "response_format.syntax"),
        (
            {
                "type": "structural_tag",
                "structures": [{"begin": "<f>", "schema": {}, "end": ""}],
                "triggers": ["<g"],
            },
            "response_format.structures[0].begin",
        ),
    ],
)
def test_an_invalid_field_of_a_format_is_named_in_the_error(
    response_format: dict[str, Any], param: str
) -> None:
    with pytest.raises(BadRequestError) as caught:
        grammar_of(response_format=response_format)

    assert caught.value.param == param


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"tool_choice": "required"}, "tools is empty"),
        ({"tool_choice": {"type": "f"}}, "^tool_choice: "),
        ({"tool_choice": {"type": "function"}}, "^tool_choice.function: "),
        ({"tool_choice": "any"}, "^tool_choice: "),
        (
            {"tools": [ADD], "tool_choice": {"type": "function", "function": {"name": "f"}}},
            "names 'f', which is not in tools",
        ),
        (
            {
                "tools": [ADD],
                "tool_choice": "required",
                "response_format": {"type": "json_object"},
            },
            "not supported together with a required tool call",
        ),
    ],
)
def test_an_invalid_tool_choice_is_rejected(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(BadRequestError, match=message):
        grammar_of(**fields)


@pytest.mark.parametrize("tool_format", ["hermes", "mistral", "llama3"])
@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({"tool_choice": "required"}, {"add", "stop"}),
        ({"tool_choice": {"type": "function", "function": {"name": "stop"}}}, {"stop"}),
        (
            {
                "tool_choice": {
                    "type": "allowed_tools",
                    "allowed_tools": {
                        "mode": "required",
                        "tools": [{"type": "function", "function": {"name": "add"}}],
                    },
                }
            },
            {"add"},
        ),
        ({"parallel_tool_calls": False}, {"add", "stop"}),
    ],
)
def test_the_grammar_contains_only_callable_tools(
    tool_format: str, fields: dict[str, Any], names: set[str]
) -> None:
    grammar = grammar_of(tool_format, tools=[ADD, STOP], **fields)

    assert grammar is not None
    assert {
        name for name in ("add", "stop") if f'\\"name\\": \\"{name}\\"' in grammar.source
    } == names


def test_a_strict_tool_is_enforced_within_any_text() -> None:
    grammar = grammar_of(tools=[STRICT, STOP])

    assert grammar is not None
    assert "TEXT" in grammar.source


def allowed_tools(mode: str, *names: str) -> dict[str, Any]:
    tools = [{"type": "function", "function": {"name": name}} for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


@pytest.mark.parametrize("tool_format", ["hermes", "mistral", "llama3", "deepseek_v3.1"])
def test_tools_that_are_not_allowed_cannot_be_called(tool_format: str) -> None:
    fields = {"tools": [ADD, STOP], "tool_choice": allowed_tools("auto", "stop")}
    spec = {item.name: item for item in TOOL_FORMATS}[tool_format]
    bodies = {
        name: spec.syntax.render([HistoryCall(name, {"a": 1} if name == "add" else {})])[0]
        for name in ("add", "stop")
    }

    grammar = grammar_of(tool_format, **fields)

    assert grammar is not None
    start, end = ("", "") if spec.marker_optional else (spec.start_marker, spec.end_marker)
    assert allows(grammar, f"{start}{bodies['stop']}{end}")
    assert not allows(grammar, f"{start}{bodies['add']}{end}")
    assert allows(grammar, "Any text.")


def test_if_all_tools_are_allowed_there_is_no_grammar() -> None:
    assert grammar_of(tools=[ADD, STOP], tool_choice=allowed_tools("auto", "stop", "add")) is None


@pytest.mark.parametrize("is_streamed", [True, False])
async def test_the_grammar_of_allowed_tools_is_passed_to_the_core(*, is_streamed: bool) -> None:
    core = FakeCore(["Hi"])

    async def load(model: object, **_: object) -> LoadedModel:
        return replace(fake_model(core), grammars=GrammarCache(CountingCompiler))

    fields: dict[str, Any] = {"tools": [ADD, STOP], "tool_choice": allowed_tools("auto", "stop")}
    async with AsyncMLCEngine(loader=load) as engine:
        result = await engine.chat.completions.create(messages=HELLO, stream=is_streamed, **fields)
        if not isinstance(result, ChatCompletion):
            async for _ in result:
                pass

    grammar = grammar_of(**fields)
    assert grammar is not None
    assert core.options[0].grammar == grammar.source


JSON_FORMAT = {"type": "json_object", "schema": {**SCHEMA, "required": ["a"]}}
REGEX_FORMAT = {"type": "grammar", "syntax": "regex", "definition": "(.|\n)*"}
LARK_FORMAT = {"type": "grammar", "syntax": "lark", "definition": 'start: "a" "b"'}
TAG_FORMAT: dict[str, Any] = {
    "type": "structural_tag",
    "structures": [{"begin": "<n>", "schema": {"type": "integer"}, "end": "</n>"}],
    "triggers": ["<n"],
}
JSON_WITH_MARKERS = json.dumps({"a": 1, "b": '<tool_call>{"name": "add"}</tool_call>'})
FORMATS_WITH_MARKERS = [item for item in TOOL_FORMATS if not item.marker_optional]


@pytest.mark.parametrize("tool_format", FORMATS_WITH_MARKERS, ids=lambda item: str(item.name))
@pytest.mark.parametrize(
    ("response_format", "valid", "invalid"),
    [
        (JSON_FORMAT, '{"a": 1}', "Hi"),
        (REGEX_FORMAT, "Hi", None),
        (LARK_FORMAT, "ab", "a"),
        (
            {**LARK_FORMAT, "definition": LARK_FORMAT["definition"] + "\n%ignore / +/"},
            "a  b",
            "b a",
        ),
        (TAG_FORMAT, "Hi <n>1</n>", "Hi <n>x"),
    ],
)
@pytest.mark.parametrize("tool", [ADD, STRICT])
def test_with_tools_and_a_response_format_either_is_allowed(
    tool: dict[str, Any],
    tool_format: ToolFormat,
    response_format: dict[str, Any],
    valid: str,
    invalid: str | None,
) -> None:
    bodies = tool_format.syntax.render([HistoryCall("add", {"a": 1})])
    call = f"{tool_format.start_marker}{bodies[0]}{tool_format.end_marker}"
    other = call.replace("add", "sub")

    grammar = grammar_of(tool_format.name, tools=[tool], response_format=response_format)

    assert grammar is not None
    assert allows(grammar, call)
    assert allows(grammar, valid)
    assert not allows(grammar, other)
    assert invalid is None or not allows(grammar, invalid)
    after_reasoning = prepend_reasoning(grammar, "</think>", lambda _: None)
    assert allows(after_reasoning, f"Hm.</think>{call}")
    assert allows(after_reasoning, f"Hm.</think>{valid}")
    assert not allows(after_reasoning, f"Hm.</think>{other}")


def test_parallel_tool_calls_is_enforced_with_a_response_format() -> None:
    call = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
    single = grammar_of(tools=[ADD], response_format=JSON_FORMAT, parallel_tool_calls=False)
    multiple = grammar_of(tools=[ADD], response_format=JSON_FORMAT)

    assert single is not None
    assert multiple is not None
    assert allows(single, call)
    assert not allows(single, f"{call}\n{call}")
    assert allows(multiple, f"{call}\n{call}")


@pytest.mark.parametrize(
    ("tool_format", "response_format"),
    [("llama3", JSON_FORMAT), ("pythonic", JSON_FORMAT), ("llama3", REGEX_FORMAT)],
)
def test_a_response_format_that_cannot_be_distinguished_from_calls_is_rejected(
    tool_format: str, response_format: dict[str, Any]
) -> None:
    with pytest.raises(
        BadRequestError, match=r"^response_format: not supported together with tools for this model"
    ) as caught:
        grammar_of(tool_format, tools=[ADD], response_format=response_format)

    assert caught.value.param == "response_format"
    assert grammar_of(tool_format, response_format=response_format) is not None
    without = {"tools": [ADD], "tool_choice": "none"}
    assert grammar_of(tool_format, response_format=response_format, **without) is not None


@pytest.mark.parametrize(("tool_format", "trigger"), [("hermes", "<t"), ("gorilla", "func")])
def test_a_trigger_within_the_start_marker_is_rejected(tool_format: str, trigger: str) -> None:
    structures = [{"begin": f"{trigger}>", "schema": {"type": "integer"}, "end": "."}]
    tags = {
        **TAG_FORMAT,
        "structures": [*TAG_FORMAT["structures"], *structures],
        "triggers": ["<n", trigger],
    }
    with pytest.raises(BadRequestError, match="which starts tool calls") as caught:
        grammar_of(tool_format, tools=[ADD], response_format=tags)

    assert caught.value.param == "response_format.triggers[1]"
    assert grammar_of(tool_format, response_format=tags) is not None


@pytest.mark.parametrize(
    ("reply", "content", "names"),
    [
        ('{"a": 1}', '{"a": 1}', []),
        (JSON_WITH_MARKERS, JSON_WITH_MARKERS, []),
        ('<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>', None, ["add"]),
    ],
)
async def test_a_completion_with_tools_and_a_response_format_is_content_or_calls(
    reply: str, content: str | None, names: list[str]
) -> None:
    core = FakeCore([reply])

    async def load(model: object, **_: object) -> LoadedModel:
        return replace(fake_model(core), grammars=GrammarCache(CountingCompiler))

    fields: dict[str, Any] = {"messages": HELLO, "tools": [ADD], "response_format": JSON_FORMAT}
    async with AsyncMLCEngine(loader=load) as engine:
        completion = await engine.chat.completions.create(**fields)
        stream = await engine.chat.completions.create(**fields, stream=True)
        deltas = [chunk.choices[0].delta async for chunk in stream]

    message = completion.choices[0].message
    assert message.content == content
    assert [call.function.name for call in message.tool_calls or ()] == names
    assert "".join(delta.content or "" for delta in deltas) == (content or "")
    streamed = [call.function.name for delta in deltas for call in delta.tool_calls or ()]
    assert [name for name in streamed if name] == names
    grammar = grammar_of(tools=[ADD], response_format=JSON_FORMAT)
    assert grammar is not None
    assert [options.grammar for options in core.options] == [grammar.source] * 2
