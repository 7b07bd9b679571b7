"""Calls of tools in an answer, whatever pieces the answer comes in."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiomlc.api.chat.tool_parser import ToolCallParser
from aiomlc.runtime.output_formats.tool_format import TOOL_FORMATS, find_tool_format
from tests.unit.runtime.output_formats.tool_answer import Read

FORMATS = {tool_format.name: tool_format for tool_format in TOOL_FORMATS}
WEATHER = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>'
TIME = '<tool_call>\n{"name": "get_time", "arguments": {}}\n</tool_call>'
ROME = ("get_weather", '{"city": "Rome"}')


def read(answer: str, name: str = "hermes", size: int = 1, *, is_cut: bool = False) -> Read:
    parser = ToolCallParser(FORMATS[name])
    deltas = []
    for start in range(0, len(answer), size):
        deltas += parser.put(answer[start : start + size])

    return Read([*deltas, *parser.finish(is_cut=is_cut)])


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize(
    ("answer", "content", "calls"),
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
def test_an_answer_is_content_and_calls(
    answer: str, content: str, calls: list[tuple[str, str]], size: int
) -> None:
    result = read(answer, size=size)

    assert (result.content, result.calls) == (content, calls)


@pytest.mark.parametrize("size", [1, 5, 1000])
@pytest.mark.parametrize(
    "answer",
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
def test_what_is_no_call_is_content_with_its_marks(answer: str, size: int) -> None:
    result = read(answer, size=size)

    assert (result.content, result.calls) == (answer, [])


@pytest.mark.parametrize(
    ("answer", "content", "calls"),
    [
        ("Yes <tool_ca", "Yes", []),
        ('Yes <tool_call>\n{"name": "f', "Yes", []),
        ("Yes <tool_call>", "Yes", []),
        (f"{WEATHER}\n<tool_call>\n", "", [ROME]),
        ('<tool_call>{"name": "f", "arguments": {"a": ', "", [("f", '{"a": ')]),
        ("Yes and no", "Yes and no", []),
    ],
)
def test_an_answer_that_the_token_limit_cut_shows_no_half_of_a_mark(
    answer: str, content: str, calls: list[tuple[str, str]]
) -> None:
    result = read(answer, is_cut=True)

    assert (result.content, result.calls) == (content, calls)


def test_arguments_come_as_they_are_written() -> None:
    parser = ToolCallParser(FORMATS["hermes"])

    first = parser.put('<tool_call>\n{"name": "f", "arguments": {"ci')
    second = parser.put('ty": "Ro')

    assert [call["function"] for delta in first for call in delta["tool_calls"]] == [
        {"name": "f", "arguments": ""},
        {"arguments": '{"ci'},
    ]
    assert second == [{"tool_calls": [{"index": 0, "function": {"arguments": 'ty": "Ro'}}]}]


def test_content_is_not_held_back_longer_than_it_must() -> None:
    parser = ToolCallParser(FORMATS["hermes"])

    assert parser.put("Hello ") == [{"content": "Hello"}]
    assert parser.put("you <") == [{"content": " you"}]
    assert parser.put("3") == [{"content": " <3"}]


@pytest.mark.parametrize("size", [1, 4, 1000])
@pytest.mark.parametrize(
    ("name", "answer", "content", "calls"),
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
def test_other_forms_are_data(
    name: str, answer: str, content: str, calls: list[tuple[str, str]], size: int
) -> None:
    result = read(answer, name, size)

    assert (result.content, result.calls) == (content, calls)


def test_each_call_has_an_id_of_its_own_in_the_form_its_template_takes() -> None:
    hermes = read(f"{WEATHER}{TIME}").ids
    mistral = read('[TOOL_CALLS][{"name": "f", "arguments": {}}]', "mistral").ids

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
def test_any_cut_of_an_answer_reads_the_same(
    arguments: dict[str, object], content: str, sizes: list[int]
) -> None:
    body = json.dumps({"name": "f", "arguments": arguments}, ensure_ascii=False)
    answer = f"{content}\n<tool_call>\n{body}\n</tool_call>"
    parser = ToolCallParser(FORMATS["hermes"])
    deltas = []
    for size in itertools.cycle(sizes):
        deltas += parser.put(answer[:size])
        answer = answer[size:]
        if not answer:
            break

    pieces = Read([*deltas, *parser.finish(is_cut=False)])

    assert pieces.content == content.rstrip()
    assert json.loads(pieces.calls[0][1]) == arguments


def test_the_format_of_a_model_is_what_its_template_teaches() -> None:
    llama = 'Respond in the format {"name": function name, "parameters": dictionary'

    assert find_tool_format("... <tool_call> ...") == FORMATS["hermes"]
    assert find_tool_format("[TOOL_CALLS]") == FORMATS["mistral"]
    assert find_tool_format(llama) == FORMATS["llama3"]
    assert find_tool_format("{{ messages }}") is None


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("is_cut", [True, False])
@pytest.mark.parametrize(
    ("answer", "content", "calls"),
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
def test_an_answer_that_has_a_form_is_calls_or_all_content(
    answer: str, content: str | None, calls: list[tuple[str, str]], size: int, *, is_cut: bool
) -> None:
    parser = ToolCallParser(FORMATS["hermes"], has_form=True)
    deltas = []
    for start in range(0, len(answer), size):
        deltas += parser.put(answer[start : start + size])

    result = Read([*deltas, *parser.finish(is_cut=is_cut)])

    expected = ("" if is_cut else answer) if content is None else content
    assert (result.content, result.calls) == (expected, calls)
