"""Translation of response templates to tool-call and reasoning formats."""

from __future__ import annotations

import json
from typing import Any

import pytest

from aiomlc.api.chat.tool_parser import ToolCallParser
from aiomlc.errors import BadRequestError
from aiomlc.runtime.output_formats.reasoning_format import ReasoningFormat
from aiomlc.runtime.output_formats.response_template import (
    OutputFormats,
    find_output_formats,
    parse_response_template,
)
from aiomlc.runtime.output_formats.tool_format import ToolFormat
from aiomlc.runtime.output_formats.tool_grammar import tool_grammar
from aiomlc.runtime.output_formats.tool_history import render_tool_calls
from aiomlc.runtime.output_formats.tool_syntax.syntax import ToolSchema
from tests.unit.runtime.output_formats.parsed_output import ParsedOutput, split_text

OPENAI = {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}}
HERMES_LIKE = {
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
NAME_IN_START = {
    "open_pattern": r"<\|call\|>to=functions\.(?P<name>\w+).*?<\|message\|>",
    "close": "<|done|>",
    "repeats": True,
    "content": "json",
    "transform": OPENAI,
}
CALL_LIST = {
    "open": "<|ACTION|>",
    "close": "<|END|>",
    "content": "json",
    "transform_each": True,
    "transform": {
        "type": "function",
        "function": {"name": "{tool_name}", "arguments": "{parameters}"},
    },
}
END_PATTERN = {
    "open_pattern": r"<call:(?P<name>\w+)>",
    "close_pattern": r"<end/?>\s*",
    "repeats": True,
    "content": "json",
    "transform": OPENAI,
}
ALTERNATIVE_MARKERS = {
    **HERMES_LIKE,
    "open": ["<call>", "<calling>"],
    "close": ["</call>", "</c>"],
    "content_args": {},
}
JSON_DIALECT = {
    "open_pattern": r"<call>(?P<name>\w+)",
    "close": "eos",
    "content": "json",
    "content_args": {"unquoted_keys": True, "string_delims": [['<"', '">']]},
    "transform": OPENAI,
}
KEY_VALUE_LINES = {
    "open_pattern": r"<call>(?P<name>\w+)",
    "close": "</call>",
    "content": "kv-lines",
    "content_args": {"value_parser": {"name": "json", "args": {"allow_non_json": True}}},
    "transform": OPENAI,
}
MERGED_DUPLICATES = {
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
FIELD_PATHS = {
    "open": "<call>",
    "close": "</call>",
    "content": "json",
    "transform": {
        "type": "function",
        "function": {"name": "{content.tool.name}", "arguments": "{content.of.args}"},
    },
}
CALLS = [{"tool_name": "f", "parameters": {"a": 1}}, {"tool_name": "g", "parameters": {}}]
PARAMETERS = {"f": {"properties": {"text": {"type": "string"}}}}


def parse_tool_format(calls: dict[str, Any]) -> ToolFormat:
    tool_format = parse_response_template({"fields": {"tool_calls": calls}}).tool_format
    assert tool_format is not None
    return tool_format


def parse_output(text: str, calls: dict[str, Any], chunk_size: int) -> ParsedOutput:
    parser = ToolCallParser(parse_tool_format(calls), PARAMETERS)
    deltas = [delta for chunk in split_text(text, [chunk_size]) for delta in parser.put(chunk)]
    return ParsedOutput([*deltas, *parser.finish(is_truncated=False)])


@pytest.mark.parametrize("chunk_size", [1, 2, 5, 1000])
@pytest.mark.parametrize(
    ("calls", "text", "content", "expected"),
    [
        (
            HERMES_LIKE,
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
            NAME_IN_START,
            '<|call|>to=functions.f x<|message|>{"a": 1}<|done|>',
            "",
            [("f", {"a": 1})],
        ),
        (
            CALL_LIST,
            f"<|ACTION|>{json.dumps(CALLS)}<|END|>",
            "",
            [("f", {"a": 1}), ("g", {})],
        ),
        (CALL_LIST, '<|ACTION|>[{"name": "f"}]<|END|>', '<|ACTION|>[{"name": "f"}]<|END|>', []),
        (NAME_IN_START, "<|call|>to=functions.f<|message|>{<|done|>", None, []),
        (NAME_IN_START, "<|call|>to=functions.<|done|>", None, []),
        (NAME_IN_START, '<|call|>to=functions.f<|message|>{"a": 1', None, []),
        # The end of the completion ends an open region.
        (NAME_IN_START, 'Ah. <|call|>to=functions.f<|message|>{"a": 1}', "Ah.", [("f", {"a": 1})]),
        ({**HERMES_LIKE, "close": "eos"}, '<call>{"name": "f"} ', "", [("f", {})]),
        (END_PATTERN, '<call:f>{"a": 1}<end> <call:g>{}', "", [("f", {"a": 1}), ("g", {})]),
        (END_PATTERN, '<call:f>{"a": 1}<end/>Done.', "Done.", [("f", {"a": 1})]),
        (
            ALTERNATIVE_MARKERS,
            '<call>{"name": "f"}</call><calling>{"name": "g"}</c>',
            "",
            [("f", {}), ("g", {})],
        ),
        (JSON_DIALECT, '<call>f{a:<"x: {b:1}">,b:[1]}', "", [("f", {"a": "x: {b:1}", "b": [1]})]),
        (JSON_DIALECT, "<call>f{a:\x010\x02}", None, []),
        (
            KEY_VALUE_LINES,
            "<call>f\nname: it: 5\n\nn = 3\nn: 4\n</call>",
            "",
            [("f", {"name": "it: 5", "n": 4})],
        ),
        (
            MERGED_DUPLICATES,
            "<call><do=f><a>1</a><b>x</b><a>2</a><a> y</a></call>",
            "",
            [("f", {"a": [1, 2, "y"], "b": "x"})],
        ),
        (
            FIELD_PATHS,
            '<call>{"tool": {"name": "f"}, "of": {"args": {"a": 1}}}</call>',
            "",
            [("f", {"a": 1})],
        ),
        (FIELD_PATHS, '<call>{"tool": 5, "of": 6}</call>', None, []),
    ],
)
def test_calls_are_parsed_by_the_response_template(
    calls: dict[str, Any],
    text: str,
    content: str | None,
    expected: list[tuple[str, dict[str, Any]]],
    chunk_size: int,
) -> None:
    result = parse_output(text, calls, chunk_size)

    assert result.content == (text if content is None else content)
    assert [(name, json.loads(arguments)) for name, arguments in result.calls] == expected


@pytest.mark.parametrize(
    "calls",
    [
        {**HERMES_LIKE, "close_pattern": "</call>"},
        {**END_PATTERN, "close_pattern": "("},
        {**HERMES_LIKE, "content": "yaml"},
        {**HERMES_LIKE, "content_args": {"comments": True}},
        {**HERMES_LIKE, "content_args": {"string_delims": [["", ""]]}},
        {**HERMES_LIKE, "content_args": [1]},
        {**HERMES_LIKE, "transform": {"function": "a {content}"}},
        {**HERMES_LIKE, "open": ["<call>", "[call]"]},
        {**KEY_VALUE_LINES, "content_args": {"value_parser": {"name": "yaml"}}},
        {**KEY_VALUE_LINES, "content_args": {"line_sep": ""}},
        {**HERMES_LIKE, "join": "x"},
        {**TAGGED, "content_args": {}},
        {**TAGGED, "content_args": {"tag_pattern": "("}},
        {**TAGGED, "content_args": {"tag_pattern": "a"}},
        {**TAGGED, "open_pattern": "<a>|<b>"},
        {**TAGGED, "open_pattern": r"\w+"},
        {**TAGGED, "open_pattern": 3},
    ],
)
def test_an_unsupported_template_is_ignored(calls: dict[str, Any]) -> None:
    assert parse_response_template({"fields": {"tool_calls": calls}}).tool_format is None


@pytest.mark.parametrize("template", [None, "x", {}, {"fields": []}, {"fields": {"content": 1}}])
def test_an_invalid_template_is_ignored(template: object) -> None:
    assert find_output_formats(None, template) == OutputFormats(None, None)


def test_a_token_that_ends_the_completion_is_not_a_marker() -> None:
    template = {"fields": {"tool_calls": {**NAME_IN_START, "close": ["<|done|>", "<|end|>"]}}}

    one_end = parse_response_template(template, {"<|done|>"}.__contains__).tool_format
    assert one_end is not None
    assert "<|end|>" in one_end.markers
    assert "<|done|>" not in one_end.markers
    ends = {"<|done|>", "<|end|>"}
    two_ends = parse_response_template(template, ends.__contains__).tool_format
    assert two_ends is not None
    assert not ends & set(two_ends.markers)


def test_an_incomplete_call_at_the_token_limit_is_dropped() -> None:
    parser = ToolCallParser(parse_tool_format(NAME_IN_START), PARAMETERS)
    deltas = parser.put('Ah. <|call|>to=functions.f<|message|>{"a": 1}')

    assert ParsedOutput([*deltas, *parser.finish(is_truncated=True)]).calls == []


def test_content_with_its_own_markers_is_not_supported() -> None:
    fields = {"tool_calls": HERMES_LIKE, "content": {"open": "<answer>", "close": "</answer>"}}

    assert parse_response_template({"fields": fields}) == OutputFormats(None, None)


def test_the_template_defines_the_markers_of_reasoning() -> None:
    reasoning = {"open": "<|reason|>", "close": "<|answer|>", "content": "text"}
    template = {"fields": {"thinking": reasoning, "content": {"content": "text"}}}

    assert find_output_formats("{{ messages }}", template) == OutputFormats(
        None,
        ReasoningFormat("<|reason|>", "<|answer|>"),
    )
    assert find_output_formats("<think>", template)[1] == ReasoningFormat("<think>", "</think>")


def test_the_chat_template_takes_precedence_unless_it_contradicts() -> None:
    same = {"fields": {"tool_calls": {**HERMES_LIKE, "open": "<tool_call>"}}}
    tagged = {**TAGGED, "open_pattern": r"\s*<tool_call>\s*<do=(?P<name>\w+)>"}
    other = {"fields": {"tool_calls": HERMES_LIKE}}

    names = [
        tool_format.name if tool_format is not None else None
        for tool_format, _, _ in (
            find_output_formats("<tool_call>", same),
            find_output_formats("<tool_call>", {"fields": {"tool_calls": tagged}}),
            find_output_formats("<tool_call>", other),
            find_output_formats("<tool_call>", None),
        )
    ]

    assert names == ["hermes", "response_template", "response_template", "hermes"]


def test_the_markers_contain_the_special_tokens_of_patterns() -> None:
    markers = parse_tool_format(NAME_IN_START).markers

    assert all(any(token in marker for marker in markers) for token in ("<|call|>", "<|message|>"))


def test_json_calls_can_be_enforced_and_calls_by_patterns_cannot() -> None:
    tool = ToolSchema("f", {"type": "object"})
    call = {"function": {"name": "f", "arguments": "{}"}}

    assert "<call>" in render_tool_calls(parse_tool_format(HERMES_LIKE), [call])
    grammar = tool_grammar(
        [tool], parse_tool_format(HERMES_LIKE), lambda _: None, must_call=True, allow_parallel=True
    )
    assert "<call>" in grammar.source
    with pytest.raises(BadRequestError) as caught:
        tool_grammar(
            [tool],
            parse_tool_format(NAME_IN_START),
            lambda _: None,
            must_call=True,
            allow_parallel=True,
        )

    assert caught.value.param == "tool_choice"
    with pytest.raises(BadRequestError, match="does not define how calls are written"):
        render_tool_calls(parse_tool_format(NAME_IN_START), [call])
