"""Tests of `check_schemas`."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from aiomlc.errors import GrammarError
from aiomlc.runtime.grammar.composition import embed_grammar
from aiomlc.runtime.grammar.grammar import Grammar, json_grammar, lark_json
from aiomlc.runtime.grammar.schema_check import check_schemas

_NODE = {"$ref": "#/$defs/node"}


def _nodes(node: dict[str, Any], root: dict[str, Any] = _NODE) -> dict[str, Any]:
    return {**root, "$defs": {"node": node}}


def _object(**properties: Any) -> dict[str, Any]:  # noqa: ANN401
    return {"type": "object", "properties": properties, "required": list(properties)}


CIRCULAR = {
    "root": {"$ref": "#"},
    "node": _nodes(_NODE),
    "two nodes": {**_NODE, "$defs": {"node": {"$ref": "#/$defs/a~1b"}, "a/b": _NODE}},
    "anyOf": {"anyOf": [{"$ref": "#"}]},
    "allOf": {"allOf": [{"type": "object"}, {"$ref": "#"}]},
    "required property": _object(next={"$ref": "#"}),
    "required item": {"type": "array", "items": {"$ref": "#"}, "minItems": 1},
    "required prefix": {"type": "array", "prefixItems": [{"$ref": "#"}], "minItems": 1},
    "optional property": {"type": "object", "properties": {"a": _NODE}, "$defs": {"node": _NODE}},
}
FINITE = {
    "unused node": {"type": "integer", "$defs": {"node": _NODE}},
    "optional next": {"type": "object", "properties": {"next": {"$ref": "#"}}},
    "nullable": {**_object(next={"$ref": "#"}), "type": ["object", "null"]},
    "union": _nodes({"anyOf": [{"type": "null"}, _object(next=_NODE)]}),
    "union with itself": {"anyOf": [{"$ref": "#"}, {"type": "integer"}]},
    "list": {"type": "array", "items": {"$ref": "#"}},
    "constant": {"const": {"next": 1}, **_object(next={"$ref": "#"})},
    "unknown reference": {"$ref": "#/$defs/missing"},
    "other document": {"$ref": "https://example.com/schema"},
    "shared node": {**_object(a=_NODE, b=_NODE), "$defs": {"node": {"type": "integer"}}},
    "strange values": {"required": 3, "properties": [], "anyOf": "x", "items": True, "type": []},
    "deep": json.loads('{"items":' * 300 + "{}" + "}" * 300),
}


@pytest.mark.parametrize("name", CIRCULAR)
def test_a_circular_schema_is_refused(name: str) -> None:
    with pytest.raises(GrammarError, match="is circular"):
        check_schemas(json_grammar(CIRCULAR[name]))


@pytest.mark.parametrize("name", FINITE)
def test_a_schema_with_finite_values_is_allowed(name: str) -> None:
    check_schemas(json_grammar(FINITE[name]))


def test_schemas_within_other_grammars_are_checked() -> None:
    lark = Grammar("lark", f'start: "x" {lark_json({"type": "null"})} {lark_json({"$ref": "#"})}')
    for grammar in (
        lark,
        embed_grammar(["start: @part"], "part", lark),
        embed_grammar(["start: @part"], "part", json_grammar({"$ref": "#"})),
    ):
        with pytest.raises(GrammarError, match="the schema # is circular"):
            check_schemas(grammar)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "int"}, "the schema # has the type 'int'; must be one of string, integer"),
        (_object(a=_object(b={"type": "str"})), "#/properties/a/properties/b has the type 'str'"),
        ({"anyOf": [{"type": "null"}, {"type": ["string", 3]}]}, "#/anyOf/1 has the type 3"),
        ({"$ref": "#/$defs/n", "$defs": {"n": {"items": {"type": None}}}}, "#/$defs/n/items"),
    ],
)
def test_an_unknown_type_is_refused_with_its_path(schema: dict[str, Any], message: str) -> None:
    with pytest.raises(GrammarError, match=re.escape(message)):
        check_schemas(json_grammar(schema))


def test_the_message_names_the_circular_schema() -> None:
    with pytest.raises(GrammarError, match=r"the schema #/\$defs/node is circular"):
        check_schemas(json_grammar(_nodes(_NODE, _object(a=_NODE))))


@pytest.mark.parametrize(
    "grammar",
    [
        Grammar("regex", "%json {"),
        Grammar("lark", "start: %json {"),
        Grammar("lark", "start: %json [" + "[" * 100_000),
        Grammar("json_schema", "not JSON"),
        Grammar("llguidance", "[]"),
    ],
)
def test_an_invalid_grammar_is_left_to_its_compilation(grammar: Grammar) -> None:
    check_schemas(grammar)


def test_a_large_schema_is_checked_in_linear_time() -> None:
    count = 20_000
    chain = {f"n{i}": {"$ref": f"#/$defs/n{i + 1}"} for i in range(count)}
    schema = {**_object(**{name: {"$ref": "#/$defs/n0"} for name in chain}), "$defs": chain}

    check_schemas(json_grammar({**schema, "$defs": {**chain, f"n{count}": {"type": "null"}}}))


@pytest.mark.parametrize("value", [5, 0.01, 1e-8, 86_400_000, 400_000_000, 0, True, "3", None])
def test_an_exact_multiple_is_allowed(value: object) -> None:
    check_schemas(json_grammar({"type": "number", "multipleOf": value}))


@pytest.mark.parametrize("value", [429_496_730, 1e10, 1e300, 10**30, 1e-9, 0.123456789])
def test_a_multiple_whose_remainders_overflow_is_refused(value: float) -> None:
    with pytest.raises(GrammarError, match="multipleOf: must be less than"):
        check_schemas(json_grammar({"items": {"type": "number", "multipleOf": value}}))
