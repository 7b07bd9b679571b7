"""Parsing of completions with tool calls, in every tool-call format and chunk size."""

# ruff: noqa: RUF001 - DeepSeek's markers contain characters that look like ASCII.

from __future__ import annotations

import pytest

from aiomlc.api.chat.tool_parser import ToolCallParser
from aiomlc.runtime.output_formats.tool_format import find_tool_format
from tests.unit.runtime.output_formats.parsed_output import (
    FORMATS,
    action,
    glm_call,
    parse_output,
    qwen_call,
    seed_call,
    v3_call,
    v3_calls,
    v31_call,
    v31_calls,
)

CHUNK_SIZES = [1, 2, 3, 7, 1000]
F = ("f", '{"a": 1}')
G = ("g", "{}")
VALID_CALLS = [
    ("mistral_named", '[TOOL_CALLS]f[ARGS]{"a": 1}', "", [F]),
    ("mistral_named", '[TOOL_CALLS]f[ARGS]{"a": 1}[TOOL_CALLS]g[ARGS]{}', "", [F, G]),
    ("mistral_named", '[TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]{"a": 1}', "", [F]),
    ("mistral_named", '[TOOL_CALLS]f[CALL_ID][ARGS] {"a": 1}', "", [F]),
    ("mistral_named", 'Wait. [TOOL_CALLS]f[ARGS]{"a": 1}\nThere.', "Wait.There.", [F]),
    ("mistral_named", '[TOOL_CALLS]f[ARGS]{"a": "]}[ARGS]"}', "", [("f", '{"a": "]}[ARGS]"}')]),
    ("deepseek_v3", v3_calls(v3_call(*F)), "", [F]),
    ("deepseek_v3", "Wait.\n" + v3_calls(v3_call(*F), v3_call(*G)), "Wait.", [F, G]),
    ("deepseek_v3", v3_calls(v3_call(*F)).partition("<｜tool▁call▁end")[0], "", [F]),
    ("deepseek_v3.1", v31_calls(v31_call(*F)), "", [F]),
    ("deepseek_v3.1", "Wait." + v31_calls(v31_call(*F), v31_call(*G)), "Wait.", [F, G]),
    ("deepseek_v3.1", v31_calls(v31_call(*F)) + "\nDone.", "Done.", [F]),
    (
        "deepseek_v3.1",
        v31_calls(
            v31_call(*F).removesuffix("<｜tool▁call▁end｜>"),
            v31_call(*G),
        ),
        "",
        [F, G],
    ),
    ("granite", '<|tool_call|>[{"name": "f", "arguments": {"a": 1}}]', "", [F]),
    (
        "granite",
        'Wait.<|tool_call|> [{"name":"f","arguments":{"a": 1}},{"name":"g","arguments":{}}]',
        "Wait.",
        [F, G],
    ),
    ("gemma4", "<|tool_call>call:f{a:1}<tool_call|>", "", [F]),
    ("gemma4", "<|tool_call>call:f{a:1}<tool_call|><|tool_call>call:g{}<tool_call|>", "", [F, G]),
    ("gemma4", "Wait.<|tool_call>call:f{a:1}<tool_call|>", "Wait.", [F]),
    (
        "gemma4",
        '<|tool_call>call:f{a:<|"|>}],"<tool_call|><|"|>,b:[None, -1.5,{c:true}]}<tool_call|>',
        "",
        [("f", '{"a": "}],\\"<tool_call|>", "b": [null, -1.5, {"c": true}]}')],
    ),
    ("seed_oss", seed_call("f", a="1"), "", [F]),
    (
        "seed_oss",
        f"Wait.\n{seed_call('f', a='1')}\n{seed_call('g')}\nDone.",
        "Wait.Done.",
        [F, G],
    ),
    ("seed_oss", seed_call("f", a="\n x"), "", [("f", '{"a": "\\n x"}')]),
    ("command_r", action('{"tool_name": "f", "parameters": {"a": 1}}'), "", [F]),
    ("command_r", action('{"tool_name": "f", "parameters": {"a": 1}}', " "), "", [F]),
    (
        "command_r",
        "Wait.\n"
        + action(
            '{\n        "tool_name": "f",\n        "parameters": {"a": 1}\n    },\n'
            '    {"tool_name": "g", "parameters": {}}'
        )
        + "\nno more",
        "Wait.no more",
        [F, G],
    ),
    ("command_r", action('{"tool_name": "directly-answer", "parameters": {}}'), "", []),
    (
        "command_r",
        action('{"tool_name": "directly_answer", "parameters": {"a": 1}}') + "\n\njson is fine",
        "json is fine",
        [],
    ),
    ("command_r", "Action: I walk.", "Action: I walk.", []),
    ("command_r", "Action: js", "Action: js", []),
    ("command_r", "Action:\n```json\n[]\n```", "Action:\n```json\n[]\n```", []),
    ("qwen3_coder", qwen_call("f", a="1"), "", [F]),
    (
        "qwen3_coder",
        f"Wait.\n{qwen_call('f', a='1')}\n{qwen_call('g')}\nDone.",
        "Wait.Done.",
        [F, G],
    ),
    ("qwen3_coder", qwen_call("f", a="1").removesuffix("</tool_call>"), "", [F]),
    ("qwen3_coder", qwen_call("f", a="1").replace("\n", ""), "", [F]),
    ("qwen3_coder", qwen_call("f", a="x </parameter> y"), "", [("f", '{"a": "x </parameter> y"}')]),
    ("qwen3_coder", qwen_call("f", a=" <b>\n"), "", [("f", '{"a": " <b>\\n"}')]),
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
    ("glm4", glm_call("f", a="1"), "", [F]),
    ("glm4", f"Wait.\n{glm_call('f', a='1')}\n{glm_call('g')}\nDone.", "Wait.Done.", [F, G]),
    ("glm4", glm_call("f", a="1").replace("\n", ""), "", [F]),
    ("glm4", glm_call("f", a="</arg_value>"), "", [("f", '{"a": "</arg_value>"}')]),
    ("glm4", "<tool_call>g</tool_call>", "", [G]),
]


@pytest.mark.parametrize("chunk_size", CHUNK_SIZES)
@pytest.mark.parametrize(("name", "text", "content", "calls"), VALID_CALLS)
def test_output_is_parsed_into_content_and_calls(
    name: str, text: str, content: str, calls: list[tuple[str, str]], chunk_size: int
) -> None:
    result = parse_output(text, name, [chunk_size])

    assert (result.content, result.calls) == (content, calls)


INVALID_CALLS = [
    ("mistral_named", "[TOOL_CALLS]"),
    ("mistral_named", '[TOOL_CALLS][{"name": "f", "arguments": {}}]'),
    ("mistral_named", "[TOOL_CALLS]f(1)"),
    ("mistral_named", "[TOOL_CALLS]f[ARGS][1]"),
    ("mistral_named", "[TOOL_CALLS]" + "f" * 200 + "[ARGS]{}"),
    ("mistral_named", "[TOOL_CALLS]f[CALL_ID]abc[CALL_ID]def[ARGS]{}"),
    ("deepseek_v3", v3_calls("f")),
    ("deepseek_v3", v3_calls(v31_call(*F))),
    ("deepseek_v3", v3_calls(v3_call("f", "1"))),
    ("deepseek_v3.1", v31_calls()),
    ("deepseek_v3.1", v31_calls(v31_call("f g", "{}"))),
    ("deepseek_v3.1", v31_calls("<｜tool▁call▁begin｜>f")),
    ("qwen3_coder", "<tool_call></tool_call>"),
    ("qwen3_coder", '<tool_call>{"name": "f", "arguments": {}}</tool_call>'),
    ("qwen3_coder", qwen_call("f g")),
    ("qwen3_coder", qwen_call("f", **{"": "1"})),
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


@pytest.mark.parametrize("chunk_size", CHUNK_SIZES)
@pytest.mark.parametrize(("name", "text"), INVALID_CALLS)
def test_an_invalid_call_is_content_with_its_markers(name: str, text: str, chunk_size: int) -> None:
    result = parse_output(text, name, [chunk_size])

    assert (result.content, result.calls) == (text, [])


@pytest.mark.parametrize(
    ("name", "text", "calls"),
    [
        ("mistral_named", "[TOOL_CALLS]f[AR", []),
        ("mistral_named", '[TOOL_CALLS]f[ARGS]{"a": ', [("f", '{"a": ')]),
        ("mistral_named", '[TOOL_CALLS]f[ARGS]{"a": 1}[TOOL_C', [F]),
        (
            "deepseek_v3",
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```",
            [],
        ),
        ("deepseek_v3", v3_calls(v3_call(*F)).rpartition("▁")[0], [F]),
        (
            "deepseek_v3.1",
            v31_calls(v31_call(*F), "<｜tool▁call▁begin｜>g")[:-17],
            [F],
        ),
    ],
)
def test_an_incomplete_call_at_the_token_limit_is_not_content(
    name: str, text: str, calls: list[tuple[str, str]]
) -> None:
    result = parse_output(text, name, [3], is_truncated=True)

    assert (result.content, result.calls) == ("", calls)


@pytest.mark.parametrize(
    ("name", "head"),
    [
        ("mistral_named", "[TOOL_CALLS]f[ARGS]"),
        ("deepseek_v3", v3_calls(v3_call("f", "#")).partition("#")[0]),
        ("deepseek_v3.1", v31_calls(v31_call("f", "#")).partition("#")[0]),
    ],
)
def test_json_arguments_are_streamed(name: str, head: str) -> None:
    parser = ToolCallParser(FORMATS[name])

    first = parser.put(head + '{"ci')
    second = parser.put('ty": "Ro')

    assert [call["function"] for delta in first for call in delta["tool_calls"]] == [
        {"name": "f", "arguments": ""},
        {"arguments": '{"ci'},
    ]
    assert second == [{"tool_calls": [{"index": 0, "function": {"arguments": 'ty": "Ro'}}]}]


def test_a_call_keeps_the_id_that_the_model_generated() -> None:
    result = parse_output("[TOOL_CALLS]f[CALL_ID]abc123def[ARGS]{}", "mistral_named", [4])

    assert result.ids == ["abc123def"]


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
def test_the_tool_format_is_found_by_the_chat_template(name: str, template: str) -> None:
    assert find_tool_format(template) == FORMATS[name]


def test_the_markers_of_a_format_include_those_within_calls() -> None:
    assert set(FORMATS["mistral_named"].markers) == {"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"}
    assert len(set(FORMATS["deepseek_v3"].markers)) == 5
