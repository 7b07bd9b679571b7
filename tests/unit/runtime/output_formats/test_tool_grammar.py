"""The grammars of tool calls, checked with llguidance's own matcher."""

# ruff: noqa: RUF001 - DeepSeek's markers contain characters that look like ASCII.

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
from aiomlc.runtime.output_formats.tool_grammar import tool_grammar
from aiomlc.runtime.output_formats.tool_syntax.syntax import ToolSchema
from tests.unit.runtime.output_formats.parsed_output import (
    FORMATS,
    ParsedOutput,
    action,
    glm_call,
    qwen_call,
    seed_call,
)

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
SAMPLED_CHARACTERS = b"""ab1"\'/<>[]{}(),\n =-:"]})<"""
STRING = {"type": "string", "maxLength": 3}
G = ToolSchema("g", {"type": "object", "properties": {}, "additionalProperties": False})


def allows(
    text: str, name: str, tools: Sequence[ToolSchema] = (F, G), *, must: bool, parallel: bool
) -> bool:
    """Whether the grammar accepts `text` as a complete output; no marker is a special token."""
    grammar = tool_grammar(
        tools, FORMATS[name], lambda _: None, must_call=must, allow_parallel=parallel
    )
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
QWEN_F = qwen_call("f", a="1", b="x\ny")
SEED_F = seed_call("f", a="1", b="x\ny")
GLM_F = glm_call("f", a="1", b="x\ny")
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
    "qwen3_coder": (QWEN_F, f"{QWEN_F}\n{qwen_call('g')}"),
    "seed_oss": (SEED_F, f"{SEED_F}\n{seed_call('g')}"),
    "granite": (
        '<|tool_call|>[{"name": "f", "arguments": {"a": 1}}]',
        '<|tool_call|>[{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": {}}]',
    ),
    "command_r": (
        action('{"tool_name": "f", "parameters": {"a": 1}}'),
        action(
            '{"tool_name": "f", "parameters": {"a": 1}},\n    {"tool_name": "g", "parameters": {}}'
        ),
    ),
    "glm4": (GLM_F, f"{GLM_F}\n{glm_call('g')}"),
    "lfm2": (
        '<|tool_call_start|>[f(a=1, b="x")]<|tool_call_end|>',
        "<|tool_call_start|>[f(a=1), g()]<|tool_call_end|>",
    ),
    "pythonic": ("[f(a=1)]", '[f(a=1, b="x"), g()]'),
    "gorilla": ("<<function>>f(a=1)", '<<function>>f(a=1, b="x")<<function>>g()'),
    "gemma4": (
        '<|tool_call>call:f{a:1,b:<|"|>x<|"|>}<tool_call|>',
        "<|tool_call>call:f{a:1}<tool_call|><|tool_call>call:g{}<tool_call|>",
    ),
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
def test_a_required_call_is_a_valid_call_of_one_of_the_tools(name: str) -> None:
    one, two = CALLS[name]

    assert allows(one, name, must=True, parallel=True)
    assert allows(two, name, must=True, parallel=True)
    assert allows(one, name, must=True, parallel=False)
    assert not allows(two, name, must=True, parallel=False)
    assert not allows(one, name, [G], must=True, parallel=True)
    assert not allows(one.replace("1", '"x"'), name, must=True, parallel=True)
    assert not allows("Hello.", name, must=True, parallel=True)


@pytest.mark.parametrize("name", CALLS)
def test_an_optional_call_may_follow_text_or_be_absent(name: str) -> None:
    one, two = CALLS[name]
    prefix = "" if FORMATS[name].marker_optional else "Wait.\n"

    assert allows("Hello.", name, must=False, parallel=True)
    assert allows(prefix + one, name, must=False, parallel=True)
    assert allows(prefix + two, name, must=False, parallel=True)


@pytest.mark.parametrize("name", CALLS)
def test_an_optional_call_is_of_one_of_the_tools(name: str) -> None:
    one, two = CALLS[name]
    prefixes = ["", "\n"] if FORMATS[name].marker_optional else ["", "\n", "Wait.\n"]
    for prefix in prefixes:
        assert not allows(prefix + one, name, [G], must=False, parallel=True)
        assert not allows(prefix + two, name, [G], must=False, parallel=True)

    marker = FORMATS[name].start_marker
    assert not allows(
        f"Wait. {marker}{one.removeprefix(marker)}", name, [G], must=False, parallel=True
    )


@pytest.mark.parametrize("name", CALLS)
def test_the_parser_finds_the_calls_that_the_grammar_accepts(name: str) -> None:
    parser = ToolCallParser(FORMATS[name], {tool.name: tool.parameters for tool in (F, G)})

    result = ParsedOutput([*parser.put(CALLS[name][1]), *parser.finish(is_truncated=False)])

    assert result.content == ""
    assert [call[0] for call in result.calls] == ["f", "g"]
    assert json.loads(result.calls[0][1])["a"] == 1


def sample_output(grammar: Grammar, rng: random.Random) -> str:
    """Return a random output that a grammar accepts; empty if none was found within 600 bytes."""
    matcher = LLMatcher(LLTokenizer("byte"), LLMatcher.grammar_from_lark(grammar.source))
    output = bytearray()
    while len(output) < 600:
        if matcher.is_accepting() and rng.random() < 0.5:
            return output.decode()

        tries = [*rng.choices(SAMPLED_CHARACTERS, k=20), *rng.sample(range(32, 127), 95)]
        candidates = matcher.compute_ff_bytes()[:1] or tries
        token = next((item for item in candidates if matcher.validate_tokens([item]) == 1), None)
        if token is None:
            break

        matcher.consume_token(token)
        output.append(token)

    return ""


@pytest.mark.parametrize("allow_parallel", [True, False])
@pytest.mark.parametrize("name", FORMATS)
def test_the_parser_finds_valid_calls_in_whatever_the_grammar_accepts(
    name: str, *, allow_parallel: bool
) -> None:
    rng = random.Random(1)
    tools = {tool.name: tool.parameters for tool in (F, G, ToolSchema("h", PARAMETERS))}
    schemas = [ToolSchema(*item) for item in tools.items()]
    grammar = tool_grammar(
        schemas, FORMATS[name], lambda _: None, must_call=True, allow_parallel=allow_parallel
    )

    outputs = list(filter(None, (sample_output(grammar, rng) for _ in range(40))))

    assert outputs
    for output in outputs:
        parser = ToolCallParser(FORMATS[name], tools)
        result = ParsedOutput([*parser.put(output), *parser.finish(is_truncated=False)])
        assert result.content == ""
        assert result.calls
        assert allow_parallel or len(result.calls) == 1
        for function, arguments in result.calls:
            jsonschema.validate(json.loads(arguments), tools[function])


@pytest.mark.parametrize("name", CALLS)
def test_markers_that_are_special_tokens_are_matched_as_tokens(name: str) -> None:
    token_ids = dict(zip(FORMATS[name].markers, range(100, 200), strict=False))

    grammar = tool_grammar([F], FORMATS[name], token_ids.get, must_call=False, allow_parallel=True)

    assert not any(marker in grammar.source for marker in token_ids)


@pytest.mark.parametrize(
    ("arguments", "is_accepted"),
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
@pytest.mark.parametrize(("name", "render_call"), [("qwen3_coder", qwen_call), ("glm4", glm_call)])
def test_an_unquoted_value_must_match_its_schema(
    name: str, render_call: Callable[..., str], arguments: dict[str, str], *, is_accepted: bool
) -> None:
    tool = ToolSchema("f", PARAMETERS)

    assert (
        allows(render_call("f", **arguments), name, [tool], must=True, parallel=True) is is_accepted
    )


@pytest.mark.parametrize(("name", "render_call"), [("qwen3_coder", qwen_call), ("glm4", glm_call)])
def test_tagged_arguments_without_a_schema_are_unconstrained(
    name: str, render_call: Callable[..., str]
) -> None:
    tool = ToolSchema("f", {"type": "object"})

    for arguments in ({}, {"a": "1"}, {"a": "x\ny", "b": "[]"}):
        assert allows(render_call("f", **arguments), name, [tool], must=True, parallel=True)


@pytest.mark.parametrize(
    "parameters",
    [
        {"type": "object", "anyOf": [{}]},
        {"type": "object", "properties": {"a": {"type": "string", "pattern": "a+"}}},
        {
            "type": "object",
            "properties": {"a": {"$ref": "#/$defs/A"}},
            "$defs": {"A": STRING},
        },
    ],
)
def test_a_schema_that_cannot_be_enforced_on_unquoted_values_is_rejected(
    parameters: dict[str, Any],
) -> None:
    with pytest.raises(BadRequestError, match="unquoted values") as caught:
        allows("", "qwen3_coder", [ToolSchema("f", parameters)], must=True, parallel=True)

    assert caught.value.param == "tool_choice"


@pytest.mark.parametrize(
    ("arguments", "is_accepted"),
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
def test_python_arguments_must_match_their_schema(arguments: str, *, is_accepted: bool) -> None:
    tool = ToolSchema("f", PARAMETERS)
    text = f"[f({arguments})]"

    assert allows(text, "pythonic", [tool], must=True, parallel=True) is is_accepted


@pytest.mark.parametrize("arguments", ["", "a=1", 'a="x", b=[{}]'])
def test_python_arguments_without_a_schema_are_unconstrained(arguments: str) -> None:
    tool = ToolSchema("f", {"type": "object"})

    assert allows(f"[f({arguments})]", "pythonic", [tool], must=True, parallel=True)


@pytest.mark.parametrize(
    "tool",
    [
        ToolSchema("f-g", {"type": "object"}),
        ToolSchema("f", {"type": "object", "properties": {"a b": {}}}),
        ToolSchema("f", {"type": "object", "oneOf": [{}]}),
    ],
)
def test_a_function_that_python_cannot_call_is_rejected(tool: ToolSchema) -> None:
    with pytest.raises(BadRequestError, match="Python calls") as caught:
        allows("", "pythonic", [tool], must=True, parallel=True)

    assert caught.value.param == "tool_choice"


@pytest.mark.parametrize(
    ("arguments", "is_accepted"),
    [
        ("size:[1,2]", True),
        ("", False),
        ("size:[<|x|>]", False),
        ('unit:<|"|>C<|"|>,size:[]', True),
        ("unit:null,size:[]", True),
        ('unit:<|"|>K<|"|>,size:[]', False),
        ('size:[],unit:<|"|>C<|"|>', False),
        ('size:[],any:{a:[true,<|"|>x}<|"|>],b.c:{}},const:<|"|>x<|"|>', True),
        ('size:[],maybe:<|"|>it\'s ] \n"<|"|>', True),
        ("size:[],maybe:null", True),
        ('size:[],yes:true,word:<|"|>a<|"|>', True),
        ("size:[],yes:false", False),
        ("size:[],word:null", False),
        ("size:[],other:1", False),
    ],
)
def test_values_of_gemma_4_must_match_their_schema(arguments: str, *, is_accepted: bool) -> None:
    text = f"<|tool_call>call:f{{{arguments}}}<tool_call|>"

    tools = [ToolSchema("f", PARAMETERS)]
    assert allows(text, "gemma4", tools, must=True, parallel=True) is is_accepted


NESTED: dict[str, Any] = {
    "type": "object",
    "$defs": {
        "Node": {
            "type": "object",
            "properties": {
                "n": {"type": "integer", "minimum": 1, "maximum": 3},
                "next": {"$ref": "#/$defs/Node"},
            },
            "required": ["n"],
            "additionalProperties": False,
        }
    },
    "properties": {
        "node": {"$ref": "#/$defs/Node"},
        "some": {"type": "array", "items": {"enum": ["a", 1]}, "minItems": 1, "maxItems": 2},
        "of type": {"type": "object", "additionalProperties": {"type": "boolean"}},
        "none": {"type": "array", "maxItems": 0},
    },
}


@pytest.mark.parametrize(
    ("arguments", "is_accepted"),
    [
        ("node:{n:1,next:{n:2,next:{n:3}}}", True),
        ("node:{n:1,next:{n:4}}", False),
        ("node:{next:{n:1}}", False),
        ('some:[<|"|>a<|"|>,1]', True),
        ("some:[]", False),
        ("some:[1,1,1]", False),
        ('<|"|>of type<|"|>:{x:true,y:false},none:[]', True),
        ('<|"|>of type<|"|>:{x:1}', False),
        ("none:[1]", False),
    ],
)
def test_nested_values_of_gemma_4_must_match_their_schema(
    arguments: str, *, is_accepted: bool
) -> None:
    text = f"<|tool_call>call:f{{{arguments}}}<tool_call|>"

    tools = [ToolSchema("f", NESTED)]
    assert allows(text, "gemma4", tools, must=True, parallel=True) is is_accepted


def test_bounds_of_arrays_of_gemma_4_are_integers_in_order() -> None:
    def grammar(**bounds: float) -> Grammar | None:
        values = {"type": "array", "items": {"type": "boolean"}, **bounds}
        tool = ToolSchema("f", {"type": "object", "properties": {"some": values}})
        gemma = FORMATS["gemma4"]
        return tool_grammar([tool], gemma, lambda _: None, must_call=True, allow_parallel=False)

    assert "1.0" not in str(grammar(minItems=2.0, maxItems=3.0))
    with pytest.raises(BadRequestError, match=r"minItems \(5\) is greater than maxItems \(2\)"):
        grammar(minItems=5, maxItems=2)


@pytest.mark.parametrize("seed", range(3))
def test_the_parser_reads_nested_values_of_gemma_4(seed: int) -> None:
    rng = random.Random(seed)
    tool = ToolSchema("f", NESTED)
    grammar = tool_grammar(
        [tool], FORMATS["gemma4"], lambda _: None, must_call=True, allow_parallel=False
    )

    outputs = list(filter(None, (sample_output(grammar, rng) for _ in range(20))))

    assert outputs
    for output in outputs:
        parser = ToolCallParser(FORMATS["gemma4"], {"f": NESTED})
        result = ParsedOutput([*parser.put(output), *parser.finish(is_truncated=False)])
        ((_, arguments),) = result.calls
        jsonschema.validate(json.loads(arguments), NESTED)


@pytest.mark.parametrize("arguments", ["", "a:1", 'a:<|"|>x<|"|>,b:[{}]'])
def test_arguments_of_gemma_4_without_a_schema_are_unconstrained(arguments: str) -> None:
    text = f"<|tool_call>call:f{{{arguments}}}<tool_call|>"

    tools = [ToolSchema("f", {"type": "object"})]
    assert allows(text, "gemma4", tools, must=True, parallel=True)


@pytest.mark.parametrize(
    ("tool", "problem"),
    [
        (ToolSchema("f g", {"type": "object"}), "the function name"),
        (ToolSchema("f", {"type": "object", "oneOf": [{}]}), "keywords in the schema: oneOf"),
        (ToolSchema("f", {"properties": {"a": {**STRING}}}), "keywords in the schema: maxLength"),
        (ToolSchema("f", {"properties": {"a": {"type": "text"}}}), "unknown types.*: text"),
        (ToolSchema("f", {"properties": {"a": {"enum": ['<|"|>']}}}), "which ends it"),
        (ToolSchema("f", {"properties": {"a": {"$ref": "#/$defs/b"}}}), "leads nowhere"),
        (ToolSchema("f", {"properties": {'<|"|>': {}}}), "which ends it"),
        (ToolSchema("f", {"properties": {"a": {"type": "null", "enum": [1]}}}), "no value of an"),
        (ToolSchema("f", {"properties": {"a": {"anyOf": [False]}}}), "no value matches"),
    ],
)
def test_a_function_that_cannot_be_enforced_for_gemma_4_is_rejected(
    tool: ToolSchema, problem: str
) -> None:
    with pytest.raises(BadRequestError, match=rf"\(Gemma 4\): .*{problem}") as caught:
        allows("", "gemma4", [tool], must=True, parallel=True)

    assert caught.value.param == "tool_choice"
