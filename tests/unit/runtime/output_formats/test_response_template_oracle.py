"""Parsing by response templates, compared with transformers if it is installed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.runtime.output_formats import test_response_template as cases
from tests.unit.runtime.output_formats.test_response_template import parse_output

chat_parsing = pytest.importorskip("transformers.utils.chat_parsing")
TEMPLATES = {
    name: getattr(cases, name)
    for name in (
        "TAGGED",
        "NAME_IN_START",
        "CALL_LIST",
        "END_PATTERN",
        "ALTERNATIVE_MARKERS",
        "JSON_DIALECT",
        "KEY_VALUE_LINES",
        "MERGED_DUPLICATES",
        "FIELD_PATHS",
    )
}
FRAGMENTS = {
    "TAGGED": ["<call>", "<do=f>", "<arg=a>", "5", "</arg>", "</call>", "\n"],
    "NAME_IN_START": [
        "<|call|>to=functions.f<|message|>",
        "<|call|>to=functions.f x<|message|>",
        '{"a": 1}',
        "<|done|>",
        " ",
    ],
    "CALL_LIST": ["<|ACTION|>", "[", '{"tool_name": "f", "parameters": {}}', ",", "]", "<|END|>"],
    "END_PATTERN": ["<call:f>", '{"a": 1}', "<end>", "<end/>", " ", "x"],
    "ALTERNATIVE_MARKERS": [
        "<call>",
        "<calling>",
        '{"name": "f", "arguments": {}}',
        "</call>",
        "</c>",
        " ",
    ],
    "JSON_DIALECT": ["<call>f", "{a:", '<"x">', "1", ",b:[2]", "}", "{"],
    "KEY_VALUE_LINES": ["<call>f", "\n", "a: 1", "b: x", ":", "</call>", " "],
    "MERGED_DUPLICATES": ["<call><do=f>", "<a>1</a>", "<a>x</a>", "<b>2</b>", "</call>", " "],
    "FIELD_PATHS": ["<call>", '{"tool": {"name": "f"}, "of": {"args": {}}}', "{}", "</call>", " "],
}


def parse_with_transformers(text: str, calls: dict[str, Any]) -> tuple[str, list[Any]] | None:
    """Return the content and the calls that transformers parses; None if it raises an error."""
    # Its templates do not name the end of a completion, which ends any open region.
    field = {name: value for name, value in calls.items() if value != "eos"}
    content = {"content": "text", "content_args": {"strip": False}}
    template = {"start_anchor": "<start>", "fields": {"content": content, "tool_calls": field}}
    try:
        message = chat_parsing.parse_response(text, template, prefix="")
    except (ValueError, KeyError, TypeError, AttributeError):
        return None

    items = message.get("tool_calls", [])
    parsed = [call for item in items for call in (item if isinstance(item, list) else [item])]
    parsed = parsed if isinstance(items, list) else [items]
    return message.get("content", ""), [call["function"] for call in parsed]


@pytest.mark.parametrize("name", TEMPLATES)
@settings(max_examples=150, deadline=None)
@given(data=st.data(), chunk_size=st.sampled_from([1, 3, 1000]))
def test_calls_equal_those_of_transformers(name: str, data: st.DataObject, chunk_size: int) -> None:
    calls = TEMPLATES[name]
    text = "".join(data.draw(st.lists(st.sampled_from(FRAGMENTS[name]), max_size=9)))
    expected = parse_with_transformers(text, {**calls, "repeats": True})
    if expected is None or not all(isinstance(call, dict) for call in expected[1]):
        return  # It rejects the output, while our parser takes an invalid call for content.

    # Arguments that are not an object are invalid for us.
    if not all(isinstance(call.get("arguments", {}), dict) for call in expected[1]):
        return

    result = parse_output(text, calls, chunk_size)

    assert [(name, json.loads(arguments)) for name, arguments in result.calls] == [
        (call["name"], call.get("arguments", {})) for call in expected[1]
    ]
