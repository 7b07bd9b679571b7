"""Which grammar a chat's answer follows, and which requests are refused."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from anyio import create_task_group, fail_after

from aiomlc import AsyncMLCEngine, ChatCompletion
from aiomlc.api.generation.structured_output import output_grammar
from aiomlc.api.protocol.chat_request import parse_chat_request
from aiomlc.errors import BadRequestError, GrammarError
from aiomlc.runtime.grammar.composition import prepend_reasoning
from aiomlc.runtime.grammar.grammar import Grammar, GrammarCache, json_grammar
from aiomlc.runtime.loading.loaded_model import LoadedModel
from aiomlc.runtime.output_formats.tool_format import TOOL_FORMATS, ToolFormat
from aiomlc.runtime.output_formats.tool_syntax.syntax import HistoryCall
from aiomlc.testing import FakeCore, fake_model
from tests.unit.grammar_oracle import allows

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
def test_most_answers_are_any_text(fields: dict[str, Any]) -> None:
    assert grammar_of(**fields) is None


@pytest.mark.parametrize(
    ("response_format", "schema"),
    [
        ({"type": "json_object"}, {"type": "object"}),
        ({"type": "json_object", "schema": json.dumps(SCHEMA)}, SCHEMA),
        ({"type": "json_object", "schema": SCHEMA}, SCHEMA),
        ({"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}, SCHEMA),
        ({"type": "json_schema", "json_schema": {"name": "x"}}, {"type": "object"}),
    ],
)
def test_json_is_what_its_schema_says(
    response_format: dict[str, Any], schema: dict[str, Any]
) -> None:
    assert grammar_of(response_format=response_format) == json_grammar(schema)


@pytest.mark.parametrize("syntax", ["regex", "lark"])
def test_a_language_is_passed_on(syntax: str) -> None:
    wanted = {"type": "grammar", "syntax": syntax, "definition": "a+"}

    grammar = grammar_of(response_format=wanted)

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
def test_a_wrong_format_is_refused_by_its_field(
    response_format: dict[str, Any], param: str
) -> None:
    with pytest.raises(BadRequestError) as caught:
        grammar_of(response_format=response_format)

    assert caught.value.param == param


@pytest.mark.parametrize(
    ("fields", "text"),
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
            "exclude each other",
        ),
    ],
)
def test_a_choice_that_cannot_be_made_is_refused(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(BadRequestError, match=text):
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
def test_a_call_is_one_of_those_that_may_be_made(
    tool_format: str, fields: dict[str, Any], names: set[str]
) -> None:
    grammar = grammar_of(tool_format, tools=[ADD, STOP], **fields)

    assert grammar is not None
    assert {
        name for name in ("add", "stop") if f'\\"name\\": \\"{name}\\"' in grammar.source
    } == names


def test_a_strict_tool_is_enforced_where_it_is_called() -> None:
    grammar = grammar_of(tools=[STRICT, STOP])

    assert grammar is not None
    assert "TEXT" in grammar.source


class CountingCompiler:
    """Returns the source, and counts how often it is asked."""

    def __init__(self) -> None:
        self.compiled: list[Grammar] = []

    def compile(self, grammar: Grammar) -> object:
        if grammar.source == "(":
            raise GrammarError("it does not end")

        self.compiled.append(grammar)
        return grammar.source


async def test_a_grammar_is_compiled_once() -> None:
    compiler = CountingCompiler()
    cache = GrammarCache(lambda: compiler)

    for source in ("a", "b", "a", "b"):
        assert await cache.compile(Grammar("regex", source)) == source

    assert [grammar.source for grammar in compiler.compiled] == ["a", "b"]


async def test_the_cache_keeps_what_was_used_last() -> None:
    compiler = CountingCompiler()
    cache = GrammarCache(lambda: compiler)

    for number in range(200):
        await cache.compile(Grammar("regex", "often"))
        await cache.compile(Grammar("regex", f"{number}"))

    assert [grammar.source for grammar in compiler.compiled].count("often") == 1


async def test_the_compiler_is_opened_once_and_a_failure_is_not_kept() -> None:
    opened: list[CountingCompiler] = []

    def open_compiler() -> CountingCompiler:
        opened.append(CountingCompiler())
        return opened[-1]

    cache = GrammarCache(open_compiler)
    with fail_after(10):
        async with create_task_group() as tasks:
            for source in "abcdef":
                tasks.start_soon(cache.compile, Grammar("regex", source))

        with pytest.raises(GrammarError):
            await cache.compile(Grammar("regex", "("))

        with pytest.raises(GrammarError):
            await cache.compile(Grammar("regex", "("))

    assert len(opened) == 1


def some(mode: str, *names: str) -> dict[str, Any]:
    named = [{"type": "function", "function": {"name": name}} for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": named}}


@pytest.mark.parametrize("tool_format", ["hermes", "mistral", "llama3", "deepseek_v3.1"])
def test_tools_that_are_not_among_the_allowed_cannot_be_called(tool_format: str) -> None:
    fields = {"tools": [ADD, STOP], "tool_choice": some("auto", "stop")}
    marked = {item.name: item for item in TOOL_FORMATS}[tool_format]
    bodies = {
        name: marked.syntax.render([HistoryCall(name, {"a": 1} if name == "add" else {})])[0]
        for name in ("add", "stop")
    }

    grammar = grammar_of(tool_format, **fields)

    assert grammar is not None
    begin, end = ("", "") if marked.marker_optional else (marked.start_marker, marked.end_marker)
    assert allows(grammar, f"{begin}{bodies['stop']}{end}")
    assert not allows(grammar, f"{begin}{bodies['add']}{end}")
    assert allows(grammar, "Any text.")


def test_where_all_tools_are_allowed_an_answer_is_any_text() -> None:
    assert grammar_of(tools=[ADD, STOP], tool_choice=some("auto", "stop", "add")) is None


@pytest.mark.parametrize("is_streamed", [True, False])
async def test_the_allowed_tools_reach_the_core(*, is_streamed: bool) -> None:
    core = FakeCore(["Hi"])

    async def load(model: object, **_: object) -> LoadedModel:
        return replace(fake_model(core), grammars=GrammarCache(CountingCompiler))

    fields: dict[str, Any] = {"tools": [ADD, STOP], "tool_choice": some("auto", "stop")}
    async with AsyncMLCEngine(loader=load) as engine:
        answer = await engine.chat.completions.create(messages=HELLO, stream=is_streamed, **fields)
        if not isinstance(answer, ChatCompletion):
            async for _ in answer:
                pass

    grammar = grammar_of(**fields)
    assert grammar is not None
    assert core.options[0].grammar == grammar.source


FORM = {"type": "json_object", "schema": {**SCHEMA, "required": ["a"]}}
PATTERN = {"type": "grammar", "syntax": "regex", "definition": "(.|\n)*"}
LARK = {"type": "grammar", "syntax": "lark", "definition": 'start: "a" "b"'}
TAGS: dict[str, Any] = {
    "type": "structural_tag",
    "structures": [{"begin": "<n>", "schema": {"type": "integer"}, "end": "</n>"}],
    "triggers": ["<n"],
}
MARKED = json.dumps({"a": 1, "b": '<tool_call>{"name": "add"}</tool_call>'})
WITH_MARKS = [item for item in TOOL_FORMATS if not item.marker_optional]


@pytest.mark.parametrize("tool_format", WITH_MARKS, ids=lambda item: str(item.name))
@pytest.mark.parametrize(
    ("response_format", "right", "wrong"),
    [
        (FORM, '{"a": 1}', "Hi"),
        (PATTERN, "Hi", None),
        (LARK, "ab", "a"),
        ({**LARK, "definition": LARK["definition"] + "\n%ignore / +/"}, "a  b", "b a"),
        (TAGS, "Hi <n>1</n>", "Hi <n>x"),
    ],
)
@pytest.mark.parametrize("tool", [ADD, STRICT])
def test_tools_beside_a_form_are_called_or_the_form_is_kept(
    tool: dict[str, Any],
    tool_format: ToolFormat,
    response_format: dict[str, Any],
    right: str,
    wrong: str | None,
) -> None:
    bodies = tool_format.syntax.render([HistoryCall("add", {"a": 1})])
    call = f"{tool_format.start_marker}{bodies[0]}{tool_format.end_marker}"
    other = call.replace("add", "sub")

    grammar = grammar_of(tool_format.name, tools=[tool], response_format=response_format)

    assert grammar is not None
    assert allows(grammar, call)
    assert allows(grammar, right)
    assert not allows(grammar, other)
    assert wrong is None or not allows(grammar, wrong)
    behind = prepend_reasoning(grammar, "</think>", lambda _: None)
    assert allows(behind, f"Hm.</think>{call}")
    assert allows(behind, f"Hm.</think>{right}")
    assert not allows(behind, f"Hm.</think>{other}")


def test_one_call_at_most_holds_beside_a_form() -> None:
    call = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
    one = grammar_of(tools=[ADD], response_format=FORM, parallel_tool_calls=False)
    many = grammar_of(tools=[ADD], response_format=FORM)

    assert one is not None
    assert many is not None
    assert allows(one, call)
    assert not allows(one, f"{call}\n{call}")
    assert allows(many, f"{call}\n{call}")


@pytest.mark.parametrize(
    ("tool_format", "response_format"),
    [("llama3", FORM), ("pythonic", FORM), ("llama3", PATTERN)],
)
def test_a_form_that_is_not_told_from_calls_is_refused(
    tool_format: str, response_format: dict[str, Any]
) -> None:
    with pytest.raises(BadRequestError, match=r"^response_format: not with tools") as caught:
        grammar_of(tool_format, tools=[ADD], response_format=response_format)

    assert caught.value.param == "response_format"
    assert grammar_of(tool_format, response_format=response_format) is not None
    without = {"tools": [ADD], "tool_choice": "none"}
    assert grammar_of(tool_format, response_format=response_format, **without) is not None


@pytest.mark.parametrize(("tool_format", "trigger"), [("hermes", "<t"), ("gorilla", "func")])
def test_a_trigger_within_the_mark_of_calls_is_refused(tool_format: str, trigger: str) -> None:
    structures = [{"begin": f"{trigger}>", "schema": {"type": "integer"}, "end": "."}]
    tags = {**TAGS, "structures": [*TAGS["structures"], *structures], "triggers": ["<n", trigger]}
    with pytest.raises(BadRequestError, match="which begins calls") as caught:
        grammar_of(tool_format, tools=[ADD], response_format=tags)

    assert caught.value.param == "response_format.triggers[1]"
    assert grammar_of(tool_format, response_format=tags) is not None


@pytest.mark.parametrize(
    ("reply", "content", "names"),
    [
        ('{"a": 1}', '{"a": 1}', []),
        (MARKED, MARKED, []),
        ('<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>', None, ["add"]),
    ],
)
async def test_an_answer_beside_tools_is_content_or_calls(
    reply: str, content: str | None, names: list[str]
) -> None:
    core = FakeCore([reply])

    async def load(model: object, **_: object) -> LoadedModel:
        return replace(fake_model(core), grammars=GrammarCache(CountingCompiler))

    fields: dict[str, Any] = {"messages": HELLO, "tools": [ADD], "response_format": FORM}
    async with AsyncMLCEngine(loader=load) as engine:
        whole = await engine.chat.completions.create(**fields)
        stream = await engine.chat.completions.create(**fields, stream=True)
        deltas = [chunk.choices[0].delta async for chunk in stream]

    message = whole.choices[0].message
    assert message.content == content
    assert [call.function.name for call in message.tool_calls or ()] == names
    assert "".join(delta.content or "" for delta in deltas) == (content or "")
    told = [call.function.name for delta in deltas for call in delta.tool_calls or ()]
    assert [name for name in told if name] == names
    grammar = grammar_of(tools=[ADD], response_format=FORM)
    assert grammar is not None
    assert [options.grammar for options in core.options] == [grammar.source] * 2
