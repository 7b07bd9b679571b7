"""Every number of a schema is enforced as it is, or refused by keyword and number."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import jsonschema
import pytest

from aiomlc.errors import GrammarError
from aiomlc.runtime.grammar.grammar import Grammar, json_grammar, lark_json
from aiomlc.runtime.grammar.schema_check import check_schemas
from tests.unit.grammar_oracle import allows

BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
COUNTS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
_POWERS = (2**31, 2**53, 2**60, 10**18, 3 * 10**17, 2**62, 2**63, 2**64, 10**20)
NUMBERS = sorted(
    {sign * (power + step) for power in _POWERS for step in (-1, 0, 1, 2) for sign in (-1, 1)}
    | {0, 7, 1187233442145239041, 12345678901234567890, 10**25, 10**400}
)
#: The bounds at the ends of machine types, each with a number that they allow.
ENDS: dict[tuple[str, str], tuple[float, ...]] = {
    ("integer", "maximum"): (2**63 - 1, 2**64 - 1),
    ("integer", "minimum"): (-(2**63), -(2**63) + 1),
    ("number", "maximum"): (2**63 - 1, 2**64 - 1, 3.4028234663852886e38, 1.7976931348623157e308),
    ("number", "minimum"): (-(2**63), -3.4028234663852886e38, -1.7976931348623157e308),
    ("integer", "exclusiveMaximum"): (2**63, 2**64),
}
_PLACES: dict[str, Callable[[Any], Any]] = {
    "root": lambda schema: schema,
    "anyOf": lambda schema: {"anyOf": [schema, {"type": "boolean"}]},
    "oneOf": lambda schema: {"oneOf": [{"type": "boolean"}, schema]},
    "reference": lambda schema: {"$ref": "#/$defs/a", "$defs": {"a": schema}},
    "allOf": lambda schema: {"allOf": [schema]},
}


def _is_end(kind: str, key: str, number: float) -> bool:
    ends: tuple[float, ...] = (2**63 - 1, 2**63, 2**64 - 1, 2**64)
    is_outward = (number > 0) == (key in ("maximum", "exclusiveMaximum"))
    return kind in ("integer", "number") and is_outward and abs(number) in ends


def _grammar(schema: Any, keyword: str, number: float) -> Grammar | None:  # noqa: ANN401 - JSON.
    """Return the grammar; None if the number is refused, which must be said."""
    grammar = json_grammar(schema)
    error = _refusal(grammar)
    if error is None:
        return grammar

    assert error.startswith(f"{keyword}: ")
    assert str(number) in error or "bits" in error
    return None


def _refusal(grammar: Grammar) -> str | None:
    try:
        check_schemas(grammar)
    except GrammarError as error:
        return str(error)

    return None


def _assert_exact(schema: Any, grammar: Grammar, numbers: Iterator[int]) -> None:  # noqa: ANN401
    validator = jsonschema.Draft202012Validator(schema)
    for value in numbers:
        assert allows(grammar, str(value)) == validator.is_valid(value), (schema, value)


@pytest.mark.parametrize("kind", ["integer", "number"])
@pytest.mark.parametrize("keyword", BOUNDS)
@pytest.mark.parametrize("place", _PLACES)
def test_a_bound_is_exact_or_refused(place: str, keyword: str, kind: str) -> None:
    exact = 0
    for number in NUMBERS:
        if _is_end(kind, keyword, number):
            continue

        schema = _PLACES[place]({"type": kind, keyword: number})
        grammar = _grammar(schema, keyword, number)
        if grammar is None:
            assert abs(number) >= 2**53
            continue

        exact += 1
        if place == "root" or number in (0, 2**53, 2**60):
            around = (number + step for step in (-2, -1, 0, 1, 2))
            _assert_exact(schema, grammar, around)

    assert exact >= 10


@pytest.mark.parametrize("keyword", ["const", "enum"])
@pytest.mark.parametrize("place", _PLACES)
def test_a_constant_is_exact_or_refused(place: str, keyword: str) -> None:
    exact = 0
    for number in NUMBERS:
        for nest in (lambda value: value, lambda value: {"a": [value]}):
            constant = nest(number)
            value = constant if keyword == "const" else [constant, "other"]
            grammar = _grammar(_PLACES[place]({keyword: value}), keyword, number)
            if grammar is None:
                assert abs(number) > 2**53
                continue

            exact += 1
            if place == "root":
                for near in (number - 1, number, number + 1):
                    assert allows(grammar, json.dumps(nest(near))) == (near == number), near

    assert exact >= 30


@pytest.mark.parametrize(("kind", "keyword"), ENDS)
def test_a_bound_at_the_end_of_a_type_costs_only_the_bound(kind: str, keyword: str) -> None:
    for end in ENDS[kind, keyword]:
        schema = {"type": kind, keyword: end}
        check_schemas(json_grammar(schema))
        assert allows(json_grammar(schema), "0")
        assert allows(json_grammar(schema), str(int(end) - (keyword == "exclusiveMaximum")))

    ranges = {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1}
    assert allows(json_grammar({"type": "array", "items": ranges}), f"[{-(2**63)}, 5]")


@pytest.mark.parametrize("smallest", [5e-324, 2.2250738585072014e-308])
def test_the_smallest_float_as_a_bound_means_that_0_is_excluded(smallest: float) -> None:
    positive = json_grammar({"type": "number", "minimum": smallest})
    negative = json_grammar({"type": "number", "maximum": -smallest})

    assert [allows(positive, text) for text in ("0.5", "0", "-0.5")] == [True, False, False]
    assert [allows(negative, text) for text in ("0.5", "0", "-0.5")] == [False, False, True]


def test_a_bound_with_too_many_decimals_is_refused() -> None:
    check_schemas(json_grammar({"type": "number", "minimum": 1e-60}))
    assert allows(json_grammar({"type": "number", "minimum": 1e-60}), "0.1")
    with pytest.raises(GrammarError, match="minimum: must be 0 or at least 1e-60 in size, got 1e-"):
        check_schemas(json_grammar({"type": "number", "minimum": 1e-100}))


@pytest.mark.parametrize("keyword", COUNTS)
@pytest.mark.parametrize("count", [2, 3.0, 2**31, 2**32 + 3, 2**53 + 1, 2**64, 10**20, 1e30])
def test_a_count_is_exact_or_refused(keyword: str, count: float) -> None:
    kinds = {"Length": ("string", '"abc"'), "Items": ("array", "[1, 2, 3]")}
    kind, text = kinds.get(keyword[3:], ("object", '{"a": 1, "b": 2, "c": 3}'))
    schema = {"type": kind, keyword: count}
    grammar = _grammar(schema, keyword, int(count))
    if grammar is None:
        assert keyword.startswith("min")
        assert count > 2**31 - 1
        return

    assert allows(grammar, text) == jsonschema.Draft202012Validator(schema).is_valid(
        json.loads(text)
    )


@pytest.mark.parametrize(
    "schema",
    [
        {"prefixItems": [{"const": 2**53 + 1}]},
        {"items": [{"const": 2**53 + 1}]},
        {"properties": {"const": {"maximum": 2**53 + 1}}},
        {"patternProperties": {"^a": {"enum": [[{"a": 2**53 + 1}]]}}},
        {"additionalProperties": {"exclusiveMinimum": 2**53 + 1}},
        {"type": "integer", "multipleOf": 2**53 + 1},
    ],
)
def test_a_number_is_found_wherever_it_is(schema: dict[str, Any]) -> None:
    for grammar in (json_grammar(schema), Grammar("lark", f"start: {lark_json(schema)}")):
        with pytest.raises(GrammarError, match=str(2**53 + 1)):
            check_schemas(grammar)


def test_what_looks_like_a_keyword_may_be_a_name_or_a_value() -> None:
    schema = {
        "properties": {"maximum": {"default": 2**53 + 1}, "const": {"type": "null"}},
        "enum": [{"maximum": 2**63, "maxLength": 2**40}],
    }

    source = json.loads(json_grammar(schema).source)
    assert source["enum"] == schema["enum"]
    check_schemas(json_grammar({"properties": schema["properties"]}))


def test_ends_in_a_lark_grammar_of_a_caller_are_refused_by_name() -> None:
    schema = json.dumps({"type": "integer", "maximum": 2**63 - 1})
    with pytest.raises(GrammarError, match=f"^maximum: .*, got {2**63 - 1}; leave it out$"):
        check_schemas(Grammar("lark", f"start: %json {schema}"))
