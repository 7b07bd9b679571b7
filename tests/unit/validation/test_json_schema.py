"""The check of JSON schemas against that of the package `jsonschema`."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from aiomlc.validation.json_schema import check_json_schema

KEYWORDS = (
    *("type", "required", "enum", "multipleOf", "uniqueItems", "minimum", "maximum"),
    *("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"),
    *("format", "title", "description", "allOf", "anyOf", "oneOf", "prefixItems"),
    *("additionalProperties", "contains", "else", "if", "items", "not", "propertyNames"),
    *("then", "unevaluatedItems", "unevaluatedProperties", "const", "default", "nullable"),
    *("$defs", "definitions", "dependentSchemas", "properties"),
)
NAMES = st.sampled_from([*KEYWORDS, "a", "b"])
LEAVES = st.one_of(
    st.sampled_from(["string", "object", "text", "", None, True, False, 0, 1, -1, 1.5, 2.0]),
    st.lists(st.sampled_from(["string", "null", "x"]), max_size=2, unique=True),
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.dictionaries(NAMES, inner, max_size=3)
        | st.lists(st.dictionaries(NAMES, inner, max_size=2), max_size=2)
    ),
    max_leaves=8,
)


def has_list_of_items(value: object) -> bool:
    """Return whether a schema may have a list of `items`, as older drafts had."""
    if isinstance(value, dict):
        return isinstance(value.get("items"), list) or any(map(has_list_of_items, value.values()))

    return isinstance(value, list) and any(map(has_list_of_items, value))


@given(schema=st.dictionaries(NAMES, VALUES, max_size=4))
def test_a_schema_is_valid_if_the_meta_schema_says_so(schema: dict[str, Any]) -> None:
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError:
        is_valid = False
    else:
        is_valid = True

    try:
        check_json_schema(schema)
    except ValueError:
        assert not is_valid
    else:
        assert is_valid or has_list_of_items(schema)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "text"}, "type must be one of 'array', .*, or a list of them, got 'text'"),
        ({"properties": {"a": {"type": 1}}}, "properties.a.type must be one of .*, got 1"),
        ({"properties": {"a": "string"}}, "properties.a must be a schema .*, got 'string'"),
        ({"anyOf": []}, "anyOf must be a non-empty list of schemas, got []"),
        ({"anyOf": [{}, {"required": True}]}, "anyOf[1].required must be a list of strings, got"),
        ({"minItems": -1}, "minItems must be a non-negative integer, got -1"),
        ({"maxLength": float("inf")}, "maxLength must be a non-negative integer, got inf"),
    ],
)
def test_an_error_names_the_path_and_what_is_allowed(schema: dict[str, Any], message: str) -> None:
    pattern = re.escape(message).replace(r"\.\*", ".*")
    with pytest.raises(ValueError, match=f"^{pattern}"):
        check_json_schema(schema)


@pytest.mark.parametrize(
    "schema",
    [
        {"items": [{"type": "string"}]},
        {"type": "number", "minimum": 1, "exclusiveMinimum": True},
        {"x-order": 3, "nullable": True},
    ],
)
def test_keywords_of_older_drafts_and_unknown_ones_are_accepted(schema: dict[str, Any]) -> None:
    check_json_schema(schema)
