"""Conversion of the arguments of tool calls: unquoted values, and Python literals."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.unit.runtime.output_formats.parsed_output import glm_call, parse_output, qwen_call

CHUNK_SIZES = [1, 2, 3, 7, 1000]


@pytest.mark.parametrize("render_call", [qwen_call, glm_call])
@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("text", "5", "5"),
        ("text", "null", "null"),
        ("text", "True", "True"),
        ("text", '"x"', '"x"'),
        ("count", "5", 5),
        ("count", "five", "five"),
        ("count", "NaN", "NaN"),
        ("count", "1e999", "1e999"),
        ("count", "[" * 100_000, "[" * 100_000),
        ("flag", "true", True),
        ("flag", "False", False),
        ("items", '[1, {"a": "b"}]', [1, {"a": "b"}]),
        ("maybe", "null", None),
        ("maybe", "5", "5"),
        ("unit", "C", "C"),
        ("loop", "5", 5),
        ("lost", "5", 5),
        ("either", "5", "5"),
        ("unknown", "5", 5),
        ("unknown", "text", "text"),
    ],
)
def test_an_unquoted_value_has_the_type_that_the_schema_specifies(
    render_call: Callable[..., str], key: str, text: str, value: object
) -> None:
    name = "qwen3_coder" if render_call is qwen_call else "glm4"

    result = parse_output(render_call("typed", **{key: text}), name, [1000])

    assert [json.loads(arguments) for _, arguments in result.calls] == [{key: value}]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("-1.5", -1.5),
        ("True", True),
        ("None", None),
        ("[true, false, null]", [True, False, None]),
        ("(1, 2)", [1, 2]),
        ("{'a': {'b': ()}}", {"a": {"b": []}}),
        (r"'it\'s'", "it's"),
        ("\"a\" 'b'", "ab"),
        ("'''it's ] [ ''' ", "it's ] [ "),
        ('""', ""),
        (r"'\d+\n'", "\\d+\n"),
        (r"r'\d'", r"\d"),
        (r"'\777'", r"\777"),
        (r"'\141\9'", r"a\9"),
        ("'two\nlines'", "two\nlines"),
        (r"'\ud800'", "\ud800"),
        ("'é ]'", "é ]"),
    ],
)
@pytest.mark.parametrize("chunk_size", CHUNK_SIZES)
def test_python_literals_become_json(text: str, value: object, chunk_size: int) -> None:
    result = parse_output(f"[f(a={text}, b=1)]", "pythonic", [chunk_size])

    assert [json.loads(arguments) for _, arguments in result.calls] == [{"a": value, "b": 1}]
