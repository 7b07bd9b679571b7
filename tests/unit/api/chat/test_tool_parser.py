"""The tool-call parser, with output in chunks of any size."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiomlc.api.chat.tool_parser import ToolCallParser
from aiomlc.runtime.output_formats.tool_format import TOOL_FORMATS, find_tool_format
from aiomlc.runtime.output_formats.tool_syntax.syntax import HistoryCall
from tests.unit.runtime.output_formats.parsed_output import ParsedOutput

FORMATS = {tool_format.name: tool_format for tool_format in TOOL_FORMATS}
WEATHER = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>'
TIME = '<tool_call>\n{"name": "get_time", "arguments": {}}\n</tool_call>'
ROME = ("get_weather", '{"city": "Rome"}')


def parse(
    output: str, name: str = "hermes", size: int = 1, *, is_truncated: bool = False
) -> ParsedOutput:
    parser = ToolCallParser(FORMATS[name])
    deltas = []
    for start in range(0, len(output), size):
        deltas += parser.put(output[start : start + size])

    return ParsedOutput([*deltas, *parser.finish(is_truncated=is_truncated)])


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize(
    ("output", "content", "calls"),
    [
        ("", "", []),
        ("Hello there!\n", "Hello there!\n", []),
        (WEATHER, "", [ROME]),
        (f"Let me look.\n\n{WEATHER}", "Let me look.", [ROME]),
        (f"{WEATHER}\n{TIME}\n", "", [ROME, ("get_time", "{}")]),
        (f"{WEATHER}\nThere.", "There.", [ROME]),
        (f"One {WEATHER} two {TIME}", "Onetwo", [ROME, ("get_time", "{}")]),
        ("a < b <tool or <tool_cal", "a < b <tool or <tool_cal", []),
        ("<<tool_call>", "<<tool_call>", []),
        ('<tool_call>{"arguments": {"a": 1}, "name": "f"}</tool_call>', "", [("f", '{"a": 1}')]),
        ('<tool_call>{"name": "f", "arguments": null}</tool_call>', "", [("f", "{}")]),
        ('<tool_call>{"name": "f", "parameters": null}</tool_call>', "", [("f", "{}")]),
        ('<tool_call>{"name": "f", "arguments": ""}</tool_call>', "", [("f", "{}")]),
        ('<tool_call>{"name": "f", "parameters": {"a": [{}]}}', "", [("f", '{"a": [{}]}')]),
        ('<tool_call>{"name": "f", "arguments": "{\\"a\\": 1}"}', "", [("f", '{"a": 1}')]),
        ('<tool_call>{"name": "f"}</tool_call>', "", [("f", "{}")]),
        (
            '<tool_call>{"name": "f", "arguments": {"a": "</tool_call> } \\" {"}}</tool_call>.',
            ".",
            [("f", '{"a": "</tool_call> } \\" {"}')],
        ),
        (
            '<tool_call>{"name": "f", "arguments": {"a": 1}\n</tool_call>\nDone.',
            "Done.",
            [("f", '{"a": 1}')],
        ),
        (
            '<tool_call>{"name": "f", "arguments": {"a": 1}, "b": {}}</tool_call>',
            "",
            [("f", '{"a": 1}')],
        ),
    ],
)
def test_output_is_split_into_content_and_calls(
    output: str, content: str, calls: list[tuple[str, str]], size: int
) -> None:
    result = parse(output, size=size)

    assert (result.content, result.calls) == (content, calls)


@pytest.mark.parametrize("size", [1, 5, 1000])
@pytest.mark.parametrize(
    "output",
    [
        "<tool_call></tool_call>",
        "<tool_call>get_weather(city='Rome')</tool_call>",
        '<tool_call>{"name": 3, "arguments": {}}</tool_call>',
        '<tool_call>{"name": "f", "arguments": [1]}</tool_call>',
        '<tool_call>{"name" "f"}</tool_call> and more',
        '<tool_call>\n{"name": "f", "argu',
        "So: <tool_call>",
    ],
)
def test_an_invalid_call_is_content_including_its_markers(output: str, size: int) -> None:
    result = parse(output, size=size)

    assert (result.content, result.calls) == (output, [])


@pytest.mark.parametrize(
    ("output", "content", "calls"),
    [
        ("Yes <tool_ca", "Yes", []),
        ('Yes <tool_call>\n{"name": "f', "Yes", []),
        ("Yes <tool_call>", "Yes", []),
        (f"{WEATHER}\n<tool_call>\n", "", [ROME]),
        ('<tool_call>{"name": "f", "arguments": {"a": ', "", [("f", '{"a": ')]),
        ("Yes and no", "Yes and no", []),
    ],
)
def test_truncated_output_drops_incomplete_markers_and_calls(
    output: str, content: str, calls: list[tuple[str, str]]
) -> None:
    result = parse(output, is_truncated=True)

    assert (result.content, result.calls) == (content, calls)


def test_arguments_are_emitted_as_they_arrive() -> None:
    parser = ToolCallParser(FORMATS["hermes"])

    first = parser.put('<tool_call>\n{"name": "f", "arguments": {"ci')
    second = parser.put('ty": "Ro')

    assert [call["function"] for delta in first for call in delta["tool_calls"]] == [
        {"name": "f", "arguments": ""},
        {"arguments": '{"ci'},
    ]
    assert second == [{"tool_calls": [{"index": 0, "function": {"arguments": 'ty": "Ro'}}]}]


def test_content_is_emitted_as_soon_as_it_cannot_be_a_marker() -> None:
    parser = ToolCallParser(FORMATS["hermes"])

    assert parser.put("Hello ") == [{"content": "Hello"}]
    assert parser.put("you <") == [{"content": " you"}]
    assert parser.put("3") == [{"content": " <3"}]


@pytest.mark.parametrize("size", [1, 4, 1000])
@pytest.mark.parametrize(
    ("name", "output", "content", "calls"),
    [
        (
            "mistral",
            '[TOOL_CALLS] [{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": {}}]',
            "",
            [("f", '{"a": 1}'), ("g", "{}")],
        ),
        ("mistral", "A list: [1, 2]", "A list: [1, 2]", []),
        (
            "llama3",
            '{"name": "f", "parameters": {"a": 1}}; {"name": "g", "parameters": {}}',
            "",
            [("f", '{"a": 1}'), ("g", "{}")],
        ),
        ("llama3", '<|python_tag|>{"name": "f", "parameters": {}}', "", [("f", "{}")]),
        ("llama3", '{"type": "function", "name": "f", "parameters": {}}', "", [("f", "{}")]),
        ("llama3", '{"name": "Ada", "age": 36}', '{"name": "Ada", "age": 36}', []),
        ("llama3", '{"name": "Ada", ', '{"name": "Ada", ', []),
        (
            "llama3",
            'See {"name": "f", "parameters": {}}',
            'See {"name": "f", "parameters": {}}',
            [],
        ),
    ],
)
def test_other_tool_formats_are_parsed(
    name: str, output: str, content: str, calls: list[tuple[str, str]], size: int
) -> None:
    result = parse(output, name, size)

    assert (result.content, result.calls) == (content, calls)


def test_each_call_has_a_unique_id_in_the_style_of_its_format() -> None:
    hermes = parse(f"{WEATHER}{TIME}").ids
    mistral = parse('[TOOL_CALLS][{"name": "f", "arguments": {}}]', "mistral").ids

    assert len(set(hermes)) == 2
    assert all(call_id.startswith("call_") for call_id in hermes)
    assert [len(call_id) for call_id in mistral] == [9]


@settings(max_examples=50)
@given(
    arguments=st.dictionaries(st.text(), st.text() | st.lists(st.integers()), max_size=3),
    content=st.text(alphabet='ab <>{}/"_tolc', max_size=20).filter(
        lambda text: "<tool_call>" not in text
    ),
    sizes=st.lists(st.integers(1, 12), min_size=1, max_size=5),
)
def test_the_result_does_not_depend_on_the_chunk_sizes(
    arguments: dict[str, object], content: str, sizes: list[int]
) -> None:
    body = json.dumps({"name": "f", "arguments": arguments}, ensure_ascii=False)
    output = f"{content}\n<tool_call>\n{body}\n</tool_call>"
    parser = ToolCallParser(FORMATS["hermes"])
    deltas = []
    for size in itertools.cycle(sizes):
        deltas += parser.put(output[:size])
        output = output[size:]
        if not output:
            break

    result = ParsedOutput([*deltas, *parser.finish(is_truncated=False)])

    assert result.content == content.rstrip()
    assert json.loads(result.calls[0][1]) == arguments


def test_the_tool_format_is_detected_from_the_chat_template() -> None:
    llama = 'Respond in the format {"name": function name, "parameters": dictionary'

    assert find_tool_format("... <tool_call> ...") == FORMATS["hermes"]
    assert find_tool_format("[TOOL_CALLS]") == FORMATS["mistral"]
    assert find_tool_format(llama) == FORMATS["llama3"]
    assert find_tool_format("{{ messages }}") is None


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("is_truncated", [True, False])
@pytest.mark.parametrize(
    ("output", "content", "calls"),
    [
        (WEATHER, "", [ROME]),
        (f"\n{WEATHER}\n{TIME}", "", [ROME, ("get_time", "{}")]),
        (json.dumps({"a": WEATHER}), json.dumps({"a": WEATHER}), []),
        (f" One {WEATHER} two", f" One {WEATHER} two", []),
        ("<tool_", None, []),
        ("<tools>\n", "<tools>\n", []),
        ("", "", []),
    ],
)
def test_with_a_response_format_the_output_is_either_calls_or_content(
    output: str, content: str | None, calls: list[tuple[str, str]], size: int, *, is_truncated: bool
) -> None:
    parser = ToolCallParser(FORMATS["hermes"], has_response_format=True)
    deltas = []
    for start in range(0, len(output), size):
        deltas += parser.put(output[start : start + size])

    result = ParsedOutput([*deltas, *parser.finish(is_truncated=is_truncated)])

    expected = ("" if is_truncated else output) if content is None else content
    assert (result.content, result.calls) == (expected, calls)


@pytest.mark.parametrize("size", [1, 1000])
@pytest.mark.parametrize("end", ["", "</end>"])
@pytest.mark.parametrize("name", FORMATS)
def test_a_call_that_is_not_complete_is_never_promised(name: str, end: str, size: int) -> None:
    """Calls are cut at every position, by a stop string or an end token."""
    tool_format = FORMATS[name]
    arguments = {"city": "Rome }", "days": [1, {"a": "<"}]}
    (body,) = tool_format.syntax.render([HistoryCall("get_weather", arguments)])
    whole = tool_format.start_marker + body
    end = end and tool_format.end_marker
    for cut in range(len(whole) + 1):
        parser = ToolCallParser(tool_format)
        text = whole[:cut] + end
        deltas = [d for at in range(0, len(text), size) for d in parser.put(text[at : at + size])]
        calls = ParsedOutput([*deltas, *parser.finish(is_truncated=False)]).calls
        if parser.num_calls and not parser.has_broken_call:
            assert isinstance(json.loads(calls[0][1]), dict), text

    whole_parser = ToolCallParser(tool_format)
    whole_parser.put(whole + tool_format.end_marker)
    whole_parser.finish(is_truncated=False)
    assert (whole_parser.num_calls, whole_parser.has_broken_call) == (1, False)


@pytest.mark.parametrize("size", [1, 2, 1000])
def test_an_end_marker_is_not_a_part_of_broken_arguments(size: int) -> None:
    broken = '<tool_call>\n{"name": "f", "arguments": {"city": "Oslo"\n</tool_call>\n'
    parser = ToolCallParser(FORMATS["hermes"])
    text = broken + TIME
    deltas = [d for at in range(0, len(text), size) for d in parser.put(text[at : at + size])]

    result = ParsedOutput([*deltas, *parser.finish(is_truncated=False)])

    assert result.calls == [("f", '{"city": "Oslo"\n'), ("get_time", "{}")]
    assert (result.content, parser.has_broken_call) == ("", True)


@pytest.mark.parametrize("arguments", ["null", '""', '" "'])
def test_arguments_that_are_empty_or_null_are_an_empty_object(arguments: str) -> None:
    output = f'<tool_call>\n{{"name": "f", "arguments": {arguments}}}\n</tool_call>'

    assert parse(output).calls == [("f", "{}")]
