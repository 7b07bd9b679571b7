"""Calls of tools in the forms of other models, whatever pieces they come in."""

# ruff: noqa: RUF001 - DeepSeek's marks look like ASCII.

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import cycle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiomlc.api.chat.tool_parser import ToolCallParser
from aiomlc.runtime.output_formats.tool_format import TOOL_FORMATS, find_tool_format
from aiomlc.runtime.output_formats.tool_history import write_tool_calls
from tests.unit.runtime.output_formats.tool_answer import Read, glm, qwen

FORMATS = {tool_format.name: tool_format for tool_format in TOOL_FORMATS}
SIZES = [1, 2, 3, 7, 1000]
Calls = Sequence[tuple[str, Mapping[str, Any]]]
PARAMETERS: dict[str, dict[str, Any]] = {
    "typed": {
        "$defs": {"Unit": {"enum": ["C", "F"]}, "Loop": {"$ref": "#/$defs/Loop"}},
        "properties": {
            "text": {"type": "string"},
            "count": {"type": "integer"},
            "flag": {"type": "boolean"},
            "items": {"type": "array"},
            "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "unit": {"$ref": "#/$defs/Unit"},
            "loop": {"$ref": "#/$defs/Loop"},
            "lost": {"$ref": "#/$defs/Lost"},
            "either": {"type": ["integer", "string"]},
        },
    },
}
V3_CALL = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>{}\n```json\n{}\n```<｜tool▁call▁end｜>"
V31_CALL = "<｜tool▁call▁begin｜>{}<｜tool▁sep｜>{}<｜tool▁call▁end｜>"


def pieces_of(answer: str, sizes: Iterable[int]) -> Iterator[str]:
    at = 0
    for size in cycle(sizes):
        if at >= len(answer):
            return

        yield answer[at : at + size]
        at += size


def read(answer: str, name: str, sizes: Iterable[int], *, is_cut: bool = False) -> Read:
    parser = ToolCallParser(FORMATS[name], PARAMETERS)
    deltas = [delta for piece in pieces_of(answer, sizes) for delta in parser.put(piece)]
    return Read([*deltas, *parser.finish(is_cut=is_cut)])


def v3(*calls: str) -> str:
    return f"<｜tool▁calls▁begin｜>{chr(10).join(calls)}<｜tool▁calls▁end｜>"


def v31(*calls: str) -> str:
    return f"<｜tool▁calls▁begin｜>{''.join(calls)}<｜tool▁calls▁end｜>"


F = ("f", '{"a": 1}')
G = ("g", "{}")
CALLS = [
    ("mistral_named", '[TOOL_CALLS]f[ARGS]{"a": 1}', "", [F]),
    ("mistral_named", '[TOOL_CALLS]f[ARGS]{"a": 1}[TOOL_CALLS]g[ARGS]{}', "", [F, G]),
    ("mistral_named", '[TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]{"a": 1}', "", [F]),
    ("mistral_named", '[TOOL_CALLS]f[CALL_ID][ARGS] {"a": 1}', "", [F]),
    ("mistral_named", 'Wait. [TOOL_CALLS]f[ARGS]{"a": 1}\nThere.', "Wait.There.", [F]),
    ("mistral_named", '[TOOL_CALLS]f[ARGS]{"a": "]}[ARGS]"}', "", [("f", '{"a": "]}[ARGS]"}')]),
    ("deepseek_v3", v3(V3_CALL.format(*F)), "", [F]),
    ("deepseek_v3", "Wait.\n" + v3(V3_CALL.format(*F), V3_CALL.format(*G)), "Wait.", [F, G]),
    ("deepseek_v3", v3(V3_CALL.format(*F)).partition("<｜tool▁call▁end")[0], "", [F]),
    ("deepseek_v3.1", v31(V31_CALL.format(*F)), "", [F]),
    ("deepseek_v3.1", "Wait." + v31(V31_CALL.format(*F), V31_CALL.format(*G)), "Wait.", [F, G]),
    ("deepseek_v3.1", v31(V31_CALL.format(*F)) + "\nDone.", "Done.", [F]),
    (
        "deepseek_v3.1",
        v31(V31_CALL.format(*F).removesuffix("<｜tool▁call▁end｜>"), V31_CALL.format(*G)),
        "",
        [F, G],
    ),
    ("qwen3_coder", qwen("f", a="1"), "", [F]),
    ("qwen3_coder", f"Wait.\n{qwen('f', a='1')}\n{qwen('g')}\nDone.", "Wait.Done.", [F, G]),
    ("qwen3_coder", qwen("f", a="1").removesuffix("</tool_call>"), "", [F]),
    ("qwen3_coder", qwen("f", a="1").replace("\n", ""), "", [F]),
    ("qwen3_coder", qwen("f", a="x </parameter> y"), "", [("f", '{"a": "x </parameter> y"}')]),
    ("qwen3_coder", qwen("f", a=" <b>\n"), "", [("f", '{"a": " <b>\\n"}')]),
    ("lfm2", "<|tool_call_start|>[f(a=1), g()]<|tool_call_end|>", "", [F, G]),
    ("lfm2", "Wait. <|tool_call_start|>[f(a=1)]<|tool_call_end|>\nDone.", "Wait.Done.", [F]),
    ("lfm2", "See [f(a=1)].", "See [f(a=1)].", []),
    ("lfm2.5", "<|tool_call_start|>[f(a=1)]", "", [F]),
    ("gorilla", "Wait. <<function>>f(a=1)<<function>>g()", "Wait.", [F, G]),
    ("gorilla", "<<function>> f( a = 1 ,)\nDone.", "Done.", [F]),
    ("gorilla", "See f(a=1).", "See f(a=1).", []),
    ("pythonic", "[f(a=1), g()]", "", [F, G]),
    ("pythonic", "\n[ f( a = 1 ,), ]", "", [F]),
    ("pythonic", "<|python_start|>[f(a=1)]<|python_end|>", "", [F]),
    ("pythonic", "[f(a=1)] and so on", "and so on", [F]),
    ("pythonic", "See [f(a=1)].", "See [f(a=1)].", []),
    ("pythonic", "[f(from='to=1', in =2)]", "", [("f", '{"from": "to=1", "in": 2}')]),
    ("pythonic", "[maps.find(a=1)]", "", [("maps.find", '{"a": 1}')]),
    ("glm4", glm("f", a="1"), "", [F]),
    ("glm4", f"Wait.\n{glm('f', a='1')}\n{glm('g')}\nDone.", "Wait.Done.", [F, G]),
    ("glm4", glm("f", a="1").replace("\n", ""), "", [F]),
    ("glm4", glm("f", a="</arg_value>"), "", [("f", '{"a": "</arg_value>"}')]),
    ("glm4", "<tool_call>g</tool_call>", "", [G]),
]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("name", "answer", "content", "calls"), CALLS)
def test_an_answer_is_content_and_calls(
    name: str, answer: str, content: str, calls: list[tuple[str, str]], size: int
) -> None:
    result = read(answer, name, [size])

    assert (result.content, result.calls) == (content, calls)


NO_CALLS = [
    ("mistral_named", "[TOOL_CALLS]"),
    ("mistral_named", '[TOOL_CALLS][{"name": "f", "arguments": {}}]'),
    ("mistral_named", "[TOOL_CALLS]f(1)"),
    ("mistral_named", "[TOOL_CALLS]f[ARGS][1]"),
    ("mistral_named", "[TOOL_CALLS]" + "f" * 200 + "[ARGS]{}"),
    ("mistral_named", "[TOOL_CALLS]f[CALL_ID]abc[CALL_ID]def[ARGS]{}"),
    ("deepseek_v3", v3("f")),
    ("deepseek_v3", v3(V31_CALL.format(*F))),
    ("deepseek_v3", v3(V3_CALL.format("f", "1"))),
    ("deepseek_v3.1", v31()),
    ("deepseek_v3.1", v31(V31_CALL.format("f g", "{}"))),
    ("deepseek_v3.1", v31("<｜tool▁call▁begin｜>f")),
    ("qwen3_coder", "<tool_call></tool_call>"),
    ("qwen3_coder", '<tool_call>{"name": "f", "arguments": {}}</tool_call>'),
    ("qwen3_coder", qwen("f g")),
    ("qwen3_coder", qwen("f", **{"": "1"})),
    ("qwen3_coder", "<tool_call>\n<function=f>\n<parameter=a>\n1\n</function>\n</tool_call>"),
    ("qwen3_coder", "<tool_call>\n<function=f>\nHello\n</function>\n</tool_call>"),
    ("lfm2", "<|tool_call_start|><|tool_call_end|>"),
    ("lfm2", "<|tool_call_start|>f(a=1)<|tool_call_end|>"),
    ("gorilla", "<<function>>f"),
    ("gorilla", "<<function>>[f(a=1)]"),
    ("gorilla", "<<function>>f(1)"),
    ("gorilla", "<<function>>f(a=g())"),
    ("pythonic", "[]"),
    ("pythonic", "[1, 2]"),
    ("pythonic", "[f]"),
    ("pythonic", "[f(1)]"),
    ("pythonic", "[f(a=b)]"),
    ("pythonic", "[f(a=g())]"),
    ("pythonic", "[f(a=1 + 1)]"),
    ("pythonic", "[f(a={1})]"),
    ("pythonic", "[f(a=b'x')]"),
    ("pythonic", "[f(a=1e999)]"),
    ("pythonic", "[f(a=f'{1}')]"),
    ("pythonic", "[f(**{'a': 1})]"),
    ("pythonic", "[f()(a=1)]"),
    ("pythonic", "[f(a=1), 2]"),
    ("pythonic", "[f(a=1}]"),
    ("pythonic", "[f(a=1"),
    ("pythonic", "[f(a='it's')]"),
    pytest.param("pythonic", f"[f(a={'(' * 3000}1{')' * 3000})]", id="deep brackets"),
    pytest.param("pythonic", f"[f(a={'-' * 30_000}1)]", id="deep operators"),
    pytest.param("pythonic", f"[f(a={'1' * 5000})]", id="a long number"),
    ("glm4", "<tool_call></tool_call>"),
    ("glm4", "<tool_call>\nWhat is it?</tool_call>"),
    ("glm4", "<tool_call>f\n<arg_key>a</arg_key>1</tool_call>"),
    ("glm4", "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>1"),
]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("name", "answer"), NO_CALLS)
def test_what_is_no_call_is_content_with_its_marks(name: str, answer: str, size: int) -> None:
    result = read(answer, name, [size])

    assert (result.content, result.calls) == (answer, [])


@pytest.mark.parametrize(
    ("name", "answer", "calls"),
    [
        ("mistral_named", "[TOOL_CALLS]f[AR", []),
        ("mistral_named", '[TOOL_CALLS]f[ARGS]{"a": ', [("f", '{"a": ')]),
        ("mistral_named", '[TOOL_CALLS]f[ARGS]{"a": 1}[TOOL_C', [F]),
        (
            "deepseek_v3",
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```",
            [],
        ),
        ("deepseek_v3", v3(V3_CALL.format(*F)).rpartition("▁")[0], [F]),
        ("deepseek_v3.1", v31(V31_CALL.format(*F), "<｜tool▁call▁begin｜>g")[:-17], [F]),
    ],
)
def test_an_answer_that_the_token_limit_cut_shows_no_half_of_a_call(
    name: str, answer: str, calls: list[tuple[str, str]]
) -> None:
    result = read(answer, name, [3], is_cut=True)

    assert (result.content, result.calls) == ("", calls)


@pytest.mark.parametrize(
    ("name", "head"),
    [
        ("mistral_named", "[TOOL_CALLS]f[ARGS]"),
        ("deepseek_v3", v3(V3_CALL.format("f", "#")).partition("#")[0]),
        ("deepseek_v3.1", v31(V31_CALL.format("f", "#")).partition("#")[0]),
    ],
)
def test_arguments_that_are_json_come_as_they_are_written(name: str, head: str) -> None:
    parser = ToolCallParser(FORMATS[name])

    first = parser.put(head + '{"ci')
    second = parser.put('ty": "Ro')

    assert [call["function"] for delta in first for call in delta["tool_calls"]] == [
        {"name": "f", "arguments": ""},
        {"arguments": '{"ci'},
    ]
    assert second == [{"tool_calls": [{"index": 0, "function": {"arguments": 'ty": "Ro'}}]}]


def test_a_call_keeps_the_id_that_the_model_gave_it() -> None:
    result = read("[TOOL_CALLS]f[CALL_ID]abc123def[ARGS]{}", "mistral_named", [4])

    assert result.ids == ["abc123def"]


@pytest.mark.parametrize("write", [qwen, glm])
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
def test_bare_text_is_what_the_schema_says(
    write: Callable[..., str], key: str, text: str, value: object
) -> None:
    name = "qwen3_coder" if write is qwen else "glm4"

    result = read(write("typed", **{key: text}), name, [1000])

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
@pytest.mark.parametrize("size", SIZES)
def test_literals_of_python_become_json(text: str, value: object, size: int) -> None:
    result = read(f"[f(a={text}, b=1)]", "pythonic", [size])

    assert [json.loads(arguments) for _, arguments in result.calls] == [{"a": value, "b": 1}]


def write_pythonic(calls: Calls) -> str:
    return ", ".join(
        f"{name}({', '.join(f'{key}={value!r}' for key, value in given.items())})"
        for name, given in calls
    )


def write_gorilla(calls: Calls) -> str:
    return "".join(f"<<function>>{write_pythonic([call])}" for call in calls)


def write_tagged(write: Callable[..., str], calls: Calls) -> str:
    return "\n".join(
        write(name, **{key: json.dumps(value) for key, value in given.items()})
        for name, given in calls
    )


def write_mistral(calls: Calls) -> str:
    return "".join(f"[TOOL_CALLS]{name}[ARGS]{json.dumps(given)}" for name, given in calls)


def write_v3(calls: Calls) -> str:
    return v3(*(V3_CALL.format(name, json.dumps(given)) for name, given in calls))


def write_v31(calls: Calls) -> str:
    return v31(*(V31_CALL.format(name, json.dumps(given)) for name, given in calls))


WRITERS: dict[str, Callable[[Calls], str]] = {
    "lfm2": lambda calls: f"<|tool_call_start|>[{write_pythonic(calls)}]<|tool_call_end|>",
    "pythonic": lambda calls: f"<|python_start|>[{write_pythonic(calls)}]",
    "gorilla": write_gorilla,
    "qwen3_coder": partial(write_tagged, qwen),
    "glm4": partial(write_tagged, glm),
    "mistral_named": write_mistral,
    "deepseek_v3": write_v3,
    "deepseek_v3.1": write_v31,
}
NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True)
KEYS = NAMES.map(lambda name: f"x{name}")  # No word of Python's.
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=4,
)


@settings(max_examples=60)
@pytest.mark.parametrize("name", WRITERS)
@given(
    calls=st.lists(st.tuples(KEYS, st.dictionaries(KEYS, VALUES, max_size=3)), max_size=3),
    content=st.text(alphabet="ab .\n", max_size=8),
    sizes=st.lists(st.integers(1, 12), min_size=1, max_size=5),
)
def test_what_a_model_calls_is_what_is_read(
    name: str, calls: list[tuple[str, dict[str, Any]]], content: str, sizes: list[int]
) -> None:
    answer = content + (WRITERS[name](calls) if calls else "")

    result = read(answer, name, sizes)

    assert result.content == (content.rstrip() if calls else content)
    assert [(name, json.loads(arguments)) for name, arguments in result.calls] == calls


PYTHONIC = ["[", "[f(", "a=", ")", "]", ",", "'", "'''", '"', "\\", "1", "\n"]
PAST = [("typed", {"text": "it's\n5", "count": 5, "items": [True, {"a": None}]}), ("g", {})]


@pytest.mark.parametrize("name", FORMATS)
def test_calls_of_a_history_are_written_as_a_model_would(name: str) -> None:
    functions = [{"function": {"name": name, "arguments": given}} for name, given in PAST]

    result = read(write_tool_calls(FORMATS[name], functions), name, [5])

    assert result.content == ""
    assert [(name, json.loads(arguments)) for name, arguments in result.calls] == PAST


FRAGMENTS = {
    "hermes": ["<tool_call>", "</tool_call>", '{"name": "f", "arguments": ', "{}", "}", '"', "\n"],
    "mistral": ["[TOOL_CALLS]", "[", "]", ",", '{"name": "f", "arguments": ', "{", "}", '"'],
    "llama3": ["<|python_tag|>", ";", '{"name": "f", "parameters": ', "{}", "}", '"'],
    "mistral_named": ["[TOOL_CALLS]", "f", "[CALL_ID]", "[ARGS]", "{", "}", '"', "["],
    "qwen3_coder": [
        *("<tool_call>", "</tool_call>", "<function=f>", "</function>", "<parameter=a>"),
        *("</parameter>", "<parameter=", "<", "\n", "1"),
    ],
    "lfm2": ["<|tool_call_start|>", "<|tool_call_end|>", *PYTHONIC],
    "lfm2.5": ["<|tool_call_start|>", "<|tool_call_end|>", *PYTHONIC],
    "pythonic": ["<|python_start|>", "<|python_end|>", *PYTHONIC],
    "gorilla": ["<<function>>", "f(", *PYTHONIC],
    "glm4": [
        *("<tool_call>", "</tool_call>", "f", "<arg_key>", "</arg_key>", "<arg_value>"),
        *("</arg_value>", "<", "\n", "1", "<arg_key>a</arg_key><arg_value>"),
    ],
    "deepseek_v3": [
        *("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁end｜>", "{}", "{", "}"),
        *("<｜tool▁call▁begin｜>", "function<｜tool▁sep｜>f\n```json\n", "\n```", "<｜tool"),
    ],
    "deepseek_v3.1": [
        *("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁end｜>", "{}", "{", "}"),
        *("<｜tool▁call▁begin｜>", "f", "<｜tool▁sep｜>", "<｜tool", "\n"),
    ],
}


def test_every_form_is_among_the_fragments() -> None:
    assert FRAGMENTS.keys() == FORMATS.keys()


@settings(max_examples=150)
@pytest.mark.parametrize("name", FRAGMENTS)
@given(data=st.data(), is_cut=st.booleans())
def test_any_cut_of_any_text_reads_the_same(
    name: str, data: st.DataObject, *, is_cut: bool
) -> None:
    begin = FORMATS[name].start_marker
    fragments = st.sampled_from([*FRAGMENTS[name], begin, " ", "x"])
    text = "".join(data.draw(st.lists(fragments, max_size=14)))
    sizes = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=4))

    whole = read(text, name, [max(len(text), 1)], is_cut=is_cut)
    pieces = read(text, name, sizes, is_cut=is_cut)

    assert (pieces.content, pieces.calls) == (whole.content, whole.calls)


@pytest.mark.parametrize(
    ("name", "template"),
    [
        ("mistral_named", "{{ '[TOOL_CALLS]' + name + '[CALL_ID]' + id + '[ARGS]' + arguments }}"),
        ("mistral_named", "{{ '[TOOL_CALLS]' + name + '[ARGS]' + arguments }}"),
        (
            "deepseek_v3",
            "'<｜tool▁calls▁begin｜>' + '<｜tool▁sep｜>' + '```json'",
        ),
        (
            "deepseek_v3.1",
            "'<｜tool▁calls▁begin｜>' + name + '<｜tool▁sep｜>'",
        ),
    ],
)
def test_the_format_of_a_model_is_what_its_template_teaches(name: str, template: str) -> None:
    assert find_tool_format(template) == FORMATS[name]


def test_every_mark_is_shown() -> None:
    assert set(FORMATS["mistral_named"].marks) == {"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"}
    assert len(set(FORMATS["deepseek_v3"].marks)) == 5
