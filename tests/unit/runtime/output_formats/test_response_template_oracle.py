"""Calls read by response templates, compared with transformers where it is installed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.runtime.output_formats import test_response_template as cases
from tests.unit.runtime.output_formats.test_response_template import read

chat_parsing = pytest.importorskip("transformers.utils.chat_parsing")
TEMPLATES = {
    name: getattr(cases, name)
    for name in (
        "TAGGED",
        "NAMED",
        "LISTED",
        "ENDED",
        "SEVERAL",
        "DIALECT",
        "LINED",
        "MERGED",
        "PATHED",
    )
}
PIECES = {
    "TAGGED": ["<call>", "<do=f>", "<arg=a>", "5", "</arg>", "</call>", "\n"],
    "NAMED": [
        "<|call|>to=functions.f<|message|>",
        "<|call|>to=functions.f x<|message|>",
        '{"a": 1}',
        "<|done|>",
        " ",
    ],
    "LISTED": ["<|ACTION|>", "[", '{"tool_name": "f", "parameters": {}}', ",", "]", "<|END|>"],
    "ENDED": ["<call:f>", '{"a": 1}', "<end>", "<end/>", " ", "x"],
    "SEVERAL": ["<call>", "<calling>", '{"name": "f", "arguments": {}}', "</call>", "</c>", " "],
    "DIALECT": ["<call>f", "{a:", '<"x">', "1", ",b:[2]", "}", "{"],
    "LINED": ["<call>f", "\n", "a: 1", "b: x", ":", "</call>", " "],
    "MERGED": ["<call><do=f>", "<a>1</a>", "<a>x</a>", "<b>2</b>", "</call>", " "],
    "PATHED": ["<call>", '{"tool": {"name": "f"}, "of": {"args": {}}}', "{}", "</call>", " "],
}


def read_there(answer: str, calls: dict[str, Any]) -> tuple[str, list[Any]] | None:
    """What transformers reads; None where it raises an error."""
    # In its templates the end of an answer has no name: whatever is open is closed there.
    field = {name: value for name, value in calls.items() if value != "eos"}
    content = {"content": "text", "content_args": {"strip": False}}
    template = {"start_anchor": "<start>", "fields": {"content": content, "tool_calls": field}}
    try:
        message = chat_parsing.parse_response(answer, template, prefix="")
    except (ValueError, KeyError, TypeError, AttributeError):
        return None

    told = message.get("tool_calls", [])
    found = [call for item in told for call in (item if isinstance(item, list) else [item])]
    found = found if isinstance(told, list) else [told]
    return message.get("content", ""), [call["function"] for call in found]


@pytest.mark.parametrize("name", TEMPLATES)
@settings(max_examples=150, deadline=None)
@given(data=st.data(), size=st.sampled_from([1, 3, 1000]))
def test_calls_are_those_that_transformers_reads(name: str, data: st.DataObject, size: int) -> None:
    calls = TEMPLATES[name]
    answer = "".join(data.draw(st.lists(st.sampled_from(PIECES[name]), max_size=9)))
    expected = read_there(answer, {**calls, "repeats": True})
    if expected is None or not all(isinstance(call, dict) for call in expected[1]):
        return  # It gives the whole answer up, where ours says what is no call.

    # Calls without arguments that are an object are none of OpenAI's.
    if not all(isinstance(call.get("arguments", {}), dict) for call in expected[1]):
        return

    result = read(answer, calls, size)

    assert [(name, json.loads(arguments)) for name, arguments in result.calls] == [
        (call["name"], call.get("arguments", {})) for call in expected[1]
    ]
