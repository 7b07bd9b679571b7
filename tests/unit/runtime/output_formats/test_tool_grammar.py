"""What a grammar of calls lets a model say, asked of llguidance itself."""

# ruff: noqa: RUF001 - DeepSeek's marks look like ASCII.

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from typing import Any

import jsonschema
import pytest
from llguidance import LLMatcher, LLTokenizer

from aiomlc.api.chat.tool_parser import ToolCallParser
from aiomlc.errors import BadRequestError
from aiomlc.runtime.grammar.grammar import Grammar
from aiomlc.runtime.output_formats.tool_format import TOOL_FORMATS
from aiomlc.runtime.output_formats.tool_grammar import tool_grammar
from aiomlc.runtime.output_formats.tool_syntax.syntax import ToolSchema
from tests.unit.runtime.output_formats.tool_answer import Read, glm, qwen

FORMATS = {tool_format.name: tool_format for tool_format in TOOL_FORMATS}
F = ToolSchema(
    "f",
    {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
        "required": ["a"],
        "additionalProperties": False,
    },
)
PARAMETERS: dict[str, Any] = {
    "type": "object",
    "$defs": {"Unit": {"enum": ["C", "F"], "type": "string"}, "Size": {"type": "integer"}},
    "properties": {
        "unit": {"anyOf": [{"$ref": "#/$defs/Unit"}, {"type": "null"}], "default": None},
        "size": {"type": "array", "items": {"$ref": "#/$defs/Size"}},
        "any": {},
        "const": {"const": "x"},
        "maybe": {"type": ["string", "null"]},
        "yes": {"type": ["boolean", "null"], "enum": [True]},
        "word": {"type": ["string", "null"], "enum": ["a"]},
    },
    "required": ["size"],
}
SAMPLED = b"""ab1"\'/<>[]{}(),\n =-:"]})<"""
LONG = {"type": "string", "maxLength": 3}
G = ToolSchema("g", {"type": "object", "properties": {}, "additionalProperties": False})


def allows(
    text: str, name: str, tools: Sequence[ToolSchema] = (F, G), *, must: bool, repeat: bool
) -> bool:
    """Whether `text` is a whole answer by the grammar; every mark is text here."""
    grammar = tool_grammar(tools, FORMATS[name], lambda _: None, must_call=must, may_repeat=repeat)
    tokenizer = LLTokenizer("byte")
    matcher = LLMatcher(tokenizer, LLMatcher.grammar_from_lark(grammar.source))
    assert not matcher.get_error()
    tokens = tokenizer.tokenize_bytes(text.encode())
    consumed: int = matcher.try_consume_tokens(tokens)
    return consumed == len(tokens) and bool(matcher.is_accepting())


HERMES_F = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
V3_F = '<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{"a": 1}\n```<｜tool▁call▁end｜>'
V3_G = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\n{}\n```<｜tool▁call▁end｜>"
V31_F = '<｜tool▁call▁begin｜>f<｜tool▁sep｜>{"a": 1}<｜tool▁call▁end｜>'
V31_G = "<｜tool▁call▁begin｜>g<｜tool▁sep｜>{}<｜tool▁call▁end｜>"
QWEN_F = qwen("f", a="1", b="x\ny")
GLM_F = glm("f", a="1", b="x\ny")
CALLS = {
    "hermes": (
        HERMES_F,
        f'{HERMES_F}\n<tool_call>\n{{"name": "g", "arguments": {{}}}}\n</tool_call>',
    ),
    "mistral": (
        '[TOOL_CALLS] [{"name": "f", "arguments": {"a": 1}}]',
        '[TOOL_CALLS] [{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": {}}]',
    ),
    "llama3": (
        '{"name": "f", "parameters": {"a": 1}}',
        '{"name": "f", "parameters": {"a": 1}}; {"name": "g", "parameters": {}}',
    ),
    "mistral_named": (
        '[TOOL_CALLS]f[ARGS]{"a": 1}',
        '[TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]{"a": 1}[TOOL_CALLS]g[ARGS]{}',
    ),
    "qwen3_coder": (QWEN_F, f"{QWEN_F}\n{qwen('g')}"),
    "glm4": (GLM_F, f"{GLM_F}\n{glm('g')}"),
    "lfm2": (
        '<|tool_call_start|>[f(a=1, b="x")]<|tool_call_end|>',
        "<|tool_call_start|>[f(a=1), g()]<|tool_call_end|>",
    ),
    "pythonic": ("[f(a=1)]", '[f(a=1, b="x"), g()]'),
    "gorilla": ("<<function>>f(a=1)", '<<function>>f(a=1, b="x")<<function>>g()'),
    "deepseek_v3": (
        f"<｜tool▁calls▁begin｜>{V3_F}<｜tool▁calls▁end｜>",
        f"<｜tool▁calls▁begin｜>{V3_F}\n{V3_G}<｜tool▁calls▁end｜>",
    ),
    "deepseek_v3.1": (
        f"<｜tool▁calls▁begin｜>{V31_F}<｜tool▁calls▁end｜>",
        f"<｜tool▁calls▁begin｜>{V31_F}{V31_G}<｜tool▁calls▁end｜>",
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls_of_the_tools_and_nothing_else_can_be_made(name: str) -> None:
    one, two = CALLS[name]

    assert allows(one, name, must=True, repeat=True)
    assert allows(two, name, must=True, repeat=True)
    assert allows(one, name, must=True, repeat=False)
    assert not allows(two, name, must=True, repeat=False)
    assert not allows(one, name, [G], must=True, repeat=True)
    assert not allows(one.replace("1", '"x"'), name, must=True, repeat=True)
    assert not allows("Hello.", name, must=True, repeat=True)


@pytest.mark.parametrize("name", CALLS)
def test_where_no_tool_must_be_called_text_may_stand_before_and_alone(name: str) -> None:
    one, two = CALLS[name]
    before = "" if FORMATS[name].marker_optional else "Wait.\n"

    assert allows("Hello.", name, must=False, repeat=True)
    assert allows(before + one, name, must=False, repeat=True)
    assert allows(before + two, name, must=False, repeat=True)


@pytest.mark.parametrize("name", CALLS)
def test_where_no_tool_must_be_called_no_other_can_be(name: str) -> None:
    one, two = CALLS[name]
    before = ["", "\n"] if FORMATS[name].marker_optional else ["", "\n", "Wait.\n"]
    for text in before:
        assert not allows(text + one, name, [G], must=False, repeat=True)
        assert not allows(text + two, name, [G], must=False, repeat=True)

    mark = FORMATS[name].start_marker
    assert not allows(f"Wait. {mark}{one.removeprefix(mark)}", name, [G], must=False, repeat=True)


@pytest.mark.parametrize("name", CALLS)
def test_what_a_grammar_allows_is_read_as_calls(name: str) -> None:
    parser = ToolCallParser(FORMATS[name], {tool.name: tool.parameters for tool in (F, G)})

    result = Read([*parser.put(CALLS[name][1]), *parser.finish(is_cut=False)])

    assert result.content == ""
    assert [call[0] for call in result.calls] == ["f", "g"]
    assert json.loads(result.calls[0][1])["a"] == 1


def sampled(grammar: Grammar, rng: random.Random) -> str:
    """A random answer that a grammar allows; empty where none was found soon."""
    matcher = LLMatcher(LLTokenizer("byte"), LLMatcher.grammar_from_lark(grammar.source))
    answer = bytearray()
    while len(answer) < 600:
        if matcher.is_accepting() and rng.random() < 0.5:
            return answer.decode()

        tried = [*rng.choices(SAMPLED, k=20), *rng.sample(range(32, 127), 95)]
        candidates = matcher.compute_ff_bytes()[:1] or tried
        token = next((item for item in candidates if matcher.validate_tokens([item]) == 1), None)
        if token is None:
            break

        matcher.consume_token(token)
        answer.append(token)

    return ""


@pytest.mark.parametrize("may_repeat", [True, False])
@pytest.mark.parametrize("name", FORMATS)
def test_whatever_a_grammar_allows_is_read_as_calls_of_its_tools(
    name: str, *, may_repeat: bool
) -> None:
    rng = random.Random(1)
    tools = {tool.name: tool.parameters for tool in (F, G, ToolSchema("h", PARAMETERS))}
    schemas = [ToolSchema(*item) for item in tools.items()]
    grammar = tool_grammar(
        schemas, FORMATS[name], lambda _: None, must_call=True, may_repeat=may_repeat
    )

    answers = list(filter(None, (sampled(grammar, rng) for _ in range(40))))

    assert answers
    for answer in answers:
        parser = ToolCallParser(FORMATS[name], tools)
        result = Read([*parser.put(answer), *parser.finish(is_cut=False)])
        assert result.content == ""
        assert result.calls
        assert may_repeat or len(result.calls) == 1
        for function, arguments in result.calls:
            jsonschema.validate(json.loads(arguments), tools[function])


@pytest.mark.parametrize("name", CALLS)
def test_marks_that_are_tokens_are_asked_for_as_such(name: str) -> None:
    marks = dict(zip(FORMATS[name].marks, range(100, 200), strict=False))

    grammar = tool_grammar([F], FORMATS[name], marks.get, must_call=False, may_repeat=True)

    assert not any(mark in grammar.source for mark in marks)


@pytest.mark.parametrize(
    ("arguments", "is_allowed"),
    [
        ({"size": "[1, 2]"}, True),
        ({}, False),
        ({"size": '["x"]'}, False),
        ({"unit": "C", "size": "[]"}, True),
        ({"unit": "null", "size": "[]"}, True),
        ({"unit": "K", "size": "[]"}, False),
        ({"size": "[]", "unit": "C"}, False),
        ({"size": "[]", "any": '{"a": 1}', "const": "x"}, True),
        ({"size": "[]", "const": "y"}, False),
        ({"size": "[]", "maybe": "null"}, True),
        ({"size": "[]", "yes": "true", "word": "a"}, True),
        ({"size": "[]", "yes": "false"}, False),
        ({"size": "[]", "word": "null"}, False),
        ({"size": "[]", "maybe": "nullify </p"}, True),
        ({"size": "[]", "other": "1"}, False),
    ],
)
@pytest.mark.parametrize(("name", "write"), [("qwen3_coder", qwen), ("glm4", glm)])
def test_bare_text_is_held_to_its_schema(
    name: str, write: Callable[..., str], arguments: dict[str, str], *, is_allowed: bool
) -> None:
    tool = ToolSchema("f", PARAMETERS)

    assert allows(write("f", **arguments), name, [tool], must=True, repeat=True) is is_allowed


@pytest.mark.parametrize(("name", "write"), [("qwen3_coder", qwen), ("glm4", glm)])
def test_where_no_schema_is_given_arguments_are_free(name: str, write: Callable[..., str]) -> None:
    tool = ToolSchema("f", {"type": "object"})

    for arguments in ({}, {"a": "1"}, {"a": "x\ny", "b": "[]"}):
        assert allows(write("f", **arguments), name, [tool], must=True, repeat=True)


@pytest.mark.parametrize(
    "parameters",
    [
        {"type": "object", "anyOf": [{}]},
        {"type": "object", "properties": {"a": {"type": "string", "pattern": "a+"}}},
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": LONG}},
    ],
)
def test_what_bare_text_cannot_be_held_to_is_refused(parameters: dict[str, Any]) -> None:
    with pytest.raises(BadRequestError, match="bare text") as caught:
        allows("", "qwen3_coder", [ToolSchema("f", parameters)], must=True, repeat=True)

    assert caught.value.param == "tool_choice"


@pytest.mark.parametrize(
    ("arguments", "is_allowed"),
    [
        ("size=[1, 2]", True),
        ("", False),
        ('size=["x"]', False),
        ('unit="C", size=[]', True),
        ("unit=None, size=[]", True),
        ('unit="K", size=[]', False),
        ('size=[], unit="C"', False),
        ('size=[], any={"a": true}, const="x"', True),
        ('size=[], maybe="it\'s ] \\n"', True),
        ("size=[], maybe=None", True),
        ('size=[], yes=true, word="a"', True),
        ("size=[], yes=False", False),
        ("size=[], word=None", False),
        ("size=[], maybe=True", False),
        ("size=[], other=1", False),
    ],
)
def test_arguments_of_pythons_are_held_to_their_schema(arguments: str, *, is_allowed: bool) -> None:
    tool = ToolSchema("f", PARAMETERS)
    text = f"[f({arguments})]"

    assert allows(text, "pythonic", [tool], must=True, repeat=True) is is_allowed


@pytest.mark.parametrize("arguments", ["", "a=1", 'a="x", b=[{}]'])
def test_where_no_schema_is_given_arguments_of_pythons_are_free(arguments: str) -> None:
    tool = ToolSchema("f", {"type": "object"})

    assert allows(f"[f({arguments})]", "pythonic", [tool], must=True, repeat=True)


@pytest.mark.parametrize(
    "tool",
    [
        ToolSchema("f-g", {"type": "object"}),
        ToolSchema("f", {"type": "object", "properties": {"a b": {}}}),
        ToolSchema("f", {"type": "object", "oneOf": [{}]}),
    ],
)
def test_what_is_no_call_of_pythons_is_refused(tool: ToolSchema) -> None:
    with pytest.raises(BadRequestError, match="Python's") as caught:
        allows("", "pythonic", [tool], must=True, repeat=True)

    assert caught.value.param == "tool_choice"
