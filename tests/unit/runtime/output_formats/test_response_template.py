"""Response templates of tokenizers, as formats of calls and thoughts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from aiomlc.api.chat.tool_parser import ToolCallParser
from aiomlc.errors import BadRequestError
from aiomlc.runtime.output_formats.reasoning_format import ReasoningFormat
from aiomlc.runtime.output_formats.response_template import (
    find_answer_formats,
    read_response_template,
)
from aiomlc.runtime.output_formats.tool_format import ToolFormat
from aiomlc.runtime.output_formats.tool_grammar import tool_grammar
from aiomlc.runtime.output_formats.tool_history import write_tool_calls
from aiomlc.runtime.output_formats.tool_syntax.syntax import ToolSchema
from tests.unit.runtime.output_formats.tool_answer import Read

OPENAI = {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}}
SMALL = {
    "open": "<call>",
    "close": "</call>",
    "repeats": True,
    "content": "json",
    "transform": {"type": "function", "function": "{content}"},
}
TAGGED = {
    "open_pattern": r"<call>\s*<do=(?P<name>\w+)>",
    "close": ["</call>", "eos"],
    "repeats": True,
    "content": "xml-inline",
    "content_args": {
        "tag_pattern": r"<arg=(?P<key>\w+)>\s*(?P<value>.*?)\s*</arg>",
        "value_parser": {"name": "json", "args": {"allow_non_json": True}},
    },
    "transform": OPENAI,
}
NAMED = {
    "open_pattern": r"<\|call\|>to=functions\.(?P<name>\w+).*?<\|message\|>",
    "close": "<|done|>",
    "repeats": True,
    "content": "json",
    "transform": OPENAI,
}
LISTED = {
    "open": "<|ACTION|>",
    "close": "<|END|>",
    "content": "json",
    "transform_each": True,
    "transform": {
        "type": "function",
        "function": {"name": "{tool_name}", "arguments": "{parameters}"},
    },
}
ENDED = {
    "open_pattern": r"<call:(?P<name>\w+)>",
    "close_pattern": r"<end/?>\s*",
    "repeats": True,
    "content": "json",
    "transform": OPENAI,
}
SEVERAL = {
    **SMALL,
    "open": ["<call>", "<calling>"],
    "close": ["</call>", "</c>"],
    "content_args": {},
}
DIALECT = {
    "open_pattern": r"<call>(?P<name>\w+)",
    "close": "eos",
    "content": "json",
    "content_args": {"unquoted_keys": True, "string_delims": [['<"', '">']]},
    "transform": OPENAI,
}
LINED = {
    "open_pattern": r"<call>(?P<name>\w+)",
    "close": "</call>",
    "content": "kv-lines",
    "content_args": {"value_parser": {"name": "json", "args": {"allow_non_json": True}}},
    "transform": OPENAI,
}
MERGED = {
    "open_pattern": r"<call><do=(?P<name>\w+)>",
    "close": "</call>",
    "content": "xml-inline",
    "content_args": {
        "tag_pattern": r"<(?P<key>\w+)>(?P<value>.*?)</(?P=key)>",
        "merge_duplicates": True,
        "value_parser": {"name": "json", "args": {"allow_non_json": True}},
    },
    "transform": OPENAI,
}
PATHED = {
    "open": "<call>",
    "close": "</call>",
    "content": "json",
    "transform": {
        "type": "function",
        "function": {"name": "{content.tool.name}", "arguments": "{content.of.args}"},
    },
}
LIST = [{"tool_name": "f", "parameters": {"a": 1}}, {"tool_name": "g", "parameters": {}}]
PARAMETERS = {"f": {"properties": {"text": {"type": "string"}}}}


def format_of(calls: dict[str, Any]) -> ToolFormat:
    found = read_response_template({"fields": {"tool_calls": calls}}).tool_format
    assert found is not None
    return found


def read(answer: str, calls: dict[str, Any], size: int) -> Read:
    parser = ToolCallParser(format_of(calls), PARAMETERS)
    pieces = [answer[start : start + size] for start in range(0, len(answer), size)]
    deltas = [delta for piece in pieces for delta in parser.put(piece)]
    return Read([*deltas, *parser.finish(is_cut=False)])


@pytest.mark.parametrize("size", [1, 2, 5, 1000])
@pytest.mark.parametrize(
    ("calls", "answer", "content", "expected"),
    [
        (
            SMALL,
            'Wait. <call>{"name": "f", "arguments": {"a": 1}}</call>\n<call>{"name": "g"}</call>',
            "Wait.",
            [("f", {"a": 1}), ("g", {})],
        ),
        (
            TAGGED,
            "Wait.\n<call>\n<do=f>\n<arg=text>\n5\n</arg>\n<arg=n>\n5\n</arg></call>\nDone.",
            "Wait.Done.",
            [("f", {"text": "5", "n": 5})],
        ),
        (
            NAMED,
            '<|call|>to=functions.f x<|message|>{"a": 1}<|done|>',
            "",
            [("f", {"a": 1})],
        ),
        (
            LISTED,
            f"<|ACTION|>{json.dumps(LIST)}<|END|>",
            "",
            [("f", {"a": 1}), ("g", {})],
        ),
        (LISTED, '<|ACTION|>[{"name": "f"}]<|END|>', '<|ACTION|>[{"name": "f"}]<|END|>', []),
        (NAMED, "<|call|>to=functions.f<|message|>{<|done|>", None, []),
        (NAMED, "<|call|>to=functions.<|done|>", None, []),
        (NAMED, '<|call|>to=functions.f<|message|>{"a": 1', None, []),
        # The end of the answer closes what is open.
        (NAMED, 'Ah. <|call|>to=functions.f<|message|>{"a": 1}', "Ah.", [("f", {"a": 1})]),
        ({**SMALL, "close": "eos"}, '<call>{"name": "f"} ', "", [("f", {})]),
        (ENDED, '<call:f>{"a": 1}<end> <call:g>{}', "", [("f", {"a": 1}), ("g", {})]),
        (ENDED, '<call:f>{"a": 1}<end/>Done.', "Done.", [("f", {"a": 1})]),
        (
            SEVERAL,
            '<call>{"name": "f"}</call><calling>{"name": "g"}</c>',
            "",
            [("f", {}), ("g", {})],
        ),
        (DIALECT, '<call>f{a:<"x: {b:1}">,b:[1]}', "", [("f", {"a": "x: {b:1}", "b": [1]})]),
        (DIALECT, "<call>f{a:\x010\x02}", None, []),
        (
            LINED,
            "<call>f\nname: it: 5\n\nn = 3\nn: 4\n</call>",
            "",
            [("f", {"name": "it: 5", "n": 4})],
        ),
        (
            MERGED,
            "<call><do=f><a>1</a><b>x</b><a>2</a><a> y</a></call>",
            "",
            [("f", {"a": [1, 2, "y"], "b": "x"})],
        ),
        (
            PATHED,
            '<call>{"tool": {"name": "f"}, "of": {"args": {"a": 1}}}</call>',
            "",
            [("f", {"a": 1})],
        ),
        (PATHED, '<call>{"tool": 5, "of": 6}</call>', None, []),
    ],
)
def test_calls_are_read_as_the_template_says(
    calls: dict[str, Any],
    answer: str,
    content: str | None,
    expected: list[tuple[str, dict[str, Any]]],
    size: int,
) -> None:
    result = read(answer, calls, size)

    assert result.content == (answer if content is None else content)
    assert [(name, json.loads(arguments)) for name, arguments in result.calls] == expected


@pytest.mark.parametrize(
    "calls",
    [
        {**SMALL, "close_pattern": "</call>"},
        {**ENDED, "close_pattern": "("},
        {**SMALL, "content": "yaml"},
        {**SMALL, "content_args": {"comments": True}},
        {**SMALL, "content_args": {"string_delims": [["", ""]]}},
        {**SMALL, "content_args": [1]},
        {**SMALL, "transform": {"function": "a {content}"}},
        {**SMALL, "open": ["<call>", "[call]"]},
        {**LINED, "content_args": {"value_parser": {"name": "yaml"}}},
        {**LINED, "content_args": {"line_sep": ""}},
        {**SMALL, "join": "x"},
        {**TAGGED, "content_args": {}},
        {**TAGGED, "content_args": {"tag_pattern": "("}},
        {**TAGGED, "content_args": {"tag_pattern": "a"}},
        {**TAGGED, "open_pattern": "<a>|<b>"},
        {**TAGGED, "open_pattern": r"\w+"},
        {**TAGGED, "open_pattern": 3},
    ],
)
def test_a_template_that_needs_more_is_left_alone(calls: dict[str, Any]) -> None:
    assert read_response_template({"fields": {"tool_calls": calls}}).tool_format is None


@pytest.mark.parametrize("template", [None, "x", {}, {"fields": []}, {"fields": {"content": 1}}])
def test_what_is_no_template_says_nothing(template: object) -> None:
    assert find_answer_formats(None, template) == (None, None)


def test_the_end_of_an_answer_is_no_mark_of_a_call() -> None:
    template = {"fields": {"tool_calls": {**NAMED, "close": ["<|done|>", "<|end|>"]}}}

    found = read_response_template(template, {"<|done|>"}.__contains__).tool_format
    assert found is not None
    assert "<|end|>" in found.marks
    assert "<|done|>" not in found.marks
    ends = {"<|done|>", "<|end|>"}
    ended = read_response_template(template, ends.__contains__).tool_format
    assert ended is not None
    assert not ends & set(ended.marks)


def test_a_call_that_the_token_limit_cut_is_dropped() -> None:
    parser = ToolCallParser(format_of(NAMED), PARAMETERS)
    deltas = parser.put('Ah. <|call|>to=functions.f<|message|>{"a": 1}')

    assert Read([*deltas, *parser.finish(is_cut=True)]).calls == []


def test_an_answer_in_marks_of_its_own_is_left_alone() -> None:
    fields = {"tool_calls": SMALL, "content": {"open": "<answer>", "close": "</answer>"}}

    assert read_response_template({"fields": fields}) == (None, None)


def test_thoughts_are_between_the_marks_of_the_template() -> None:
    thoughts = {"open": "<|thought|>", "close": "<|answer|>", "content": "text"}
    template = {"fields": {"thinking": thoughts, "content": {"content": "text"}}}

    assert find_answer_formats("{{ messages }}", template) == (
        None,
        ReasoningFormat("<|thought|>", "<|answer|>"),
    )
    assert find_answer_formats("<think>", template)[1] == ReasoningFormat("<think>", "</think>")


def test_what_the_chat_template_shows_goes_first() -> None:
    same = {"fields": {"tool_calls": {**SMALL, "open": "<tool_call>"}}}
    tagged = {**TAGGED, "open_pattern": r"\s*<tool_call>\s*<do=(?P<name>\w+)>"}
    other = {"fields": {"tool_calls": SMALL}}

    names = [
        found.name if found is not None else None
        for found, _ in (
            find_answer_formats("<tool_call>", same),
            find_answer_formats("<tool_call>", {"fields": {"tool_calls": tagged}}),
            find_answer_formats("<tool_call>", other),
            find_answer_formats("<tool_call>", None),
        )
    ]

    assert names == ["hermes", "response_template", "response_template", "hermes"]


def test_special_tokens_in_patterns_are_shown() -> None:
    marks = format_of(NAMED).marks

    assert all(any(token in mark for mark in marks) for token in ("<|call|>", "<|message|>"))


def test_json_between_marks_is_enforced_and_patterns_are_not() -> None:
    tool = ToolSchema("f", {"type": "object"})
    call = {"function": {"name": "f", "arguments": "{}"}}

    assert "<call>" in write_tool_calls(format_of(SMALL), [call])
    grammar = tool_grammar(
        [tool], format_of(SMALL), lambda _: None, must_call=True, may_repeat=True
    )
    assert "<call>" in grammar.source
    with pytest.raises(BadRequestError) as caught:
        tool_grammar([tool], format_of(NAMED), lambda _: None, must_call=True, may_repeat=True)

    assert caught.value.param == "tool_choice"
    with pytest.raises(BadRequestError, match="how calls are written"):
        write_tool_calls(format_of(NAMED), [call])
