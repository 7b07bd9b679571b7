"""Round trips of generated tool calls, and independence of how a completion is chunked."""

# ruff: noqa: RUF001 - DeepSeek's markers contain characters that look like ASCII.

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiomlc.runtime.output_formats.tool_history import render_tool_calls
from aiomlc.runtime.output_formats.tool_syntax.syntax import HistoryCall
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

Calls = Sequence[tuple[str, Mapping[str, Any]]]


def render_pythonic(calls: Calls) -> str:
    return ", ".join(
        f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"
        for name, arguments in calls
    )


def render_gorilla(calls: Calls) -> str:
    return "".join(f"<<function>>{render_pythonic([call])}" for call in calls)


def render_tagged(render_call: Callable[..., str], calls: Calls) -> str:
    return "\n".join(
        render_call(name, **{key: json.dumps(value) for key, value in arguments.items()})
        for name, arguments in calls
    )


def render_json(calls: Calls, *keys: str) -> str:
    return json.dumps([dict(zip(keys, call, strict=True)) for call in calls], indent=4)


def render_mistral(calls: Calls) -> str:
    return "".join(f"[TOOL_CALLS]{name}[ARGS]{json.dumps(arguments)}" for name, arguments in calls)


def render_deepseek_v3(calls: Calls) -> str:
    return v3_calls(*(v3_call(name, json.dumps(arguments)) for name, arguments in calls))


def render_deepseek_v31(calls: Calls) -> str:
    return v31_calls(*(v31_call(name, json.dumps(arguments)) for name, arguments in calls))


def render_gemma4(calls: Calls) -> str:
    rendered = FORMATS["gemma4"].syntax.render([HistoryCall(*call) for call in calls])
    return "".join(f"<|tool_call>{call}<tool_call|>" for call in rendered)


RENDERERS: dict[str, Callable[[Calls], str]] = {
    "lfm2": lambda calls: f"<|tool_call_start|>[{render_pythonic(calls)}]<|tool_call_end|>",
    "pythonic": lambda calls: f"<|python_start|>[{render_pythonic(calls)}]",
    "gorilla": render_gorilla,
    "qwen3_coder": partial(render_tagged, qwen_call),
    "glm4": partial(render_tagged, glm_call),
    "gemma4": render_gemma4,
    "seed_oss": partial(render_tagged, seed_call),
    "granite": lambda calls: f"<|tool_call|>{render_json(calls, 'name', 'arguments')}",
    "command_r": lambda calls: action(render_json(calls, "tool_name", "parameters")[1:-1]),
    "mistral_named": render_mistral,
    "deepseek_v3": render_deepseek_v3,
    "deepseek_v3.1": render_deepseek_v31,
}
NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True)
KEYS = NAMES.map(lambda name: f"x{name}")  # The prefix avoids Python keywords.
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=4,
)


@pytest.mark.thorough
@settings(max_examples=60)
@pytest.mark.parametrize("name", RENDERERS)
@given(
    calls=st.lists(st.tuples(KEYS, st.dictionaries(KEYS, VALUES, max_size=3)), max_size=3),
    content=st.text(alphabet="ab .\n", max_size=8),
    chunk_sizes=st.lists(st.integers(1, 12), min_size=1, max_size=5),
)
def test_calls_survive_a_round_trip(
    name: str, calls: list[tuple[str, dict[str, Any]]], content: str, chunk_sizes: list[int]
) -> None:
    text = content + (RENDERERS[name](calls) if calls else "")

    result = parse_output(text, name, chunk_sizes)

    assert result.content == (content.rstrip() if calls else content)
    assert [(name, json.loads(arguments)) for name, arguments in result.calls] == calls


PYTHONIC_FRAGMENTS = ["[", "[f(", "a=", ")", "]", ",", "'", "'''", '"', "\\", "1", "\n"]
HISTORY = [("typed", {"text": "it's\n5", "count": 5, "items": [True, {"a": None}]}), ("g", {})]


@pytest.mark.parametrize("name", FORMATS)
def test_calls_of_the_history_are_rendered_in_the_models_format(name: str) -> None:
    calls = [{"function": {"name": name, "arguments": arguments}} for name, arguments in HISTORY]

    result = parse_output(render_tool_calls(FORMATS[name], calls), name, [5])

    assert result.content == ""
    assert [(name, json.loads(arguments)) for name, arguments in result.calls] == HISTORY


FRAGMENTS = {
    "gemma4": ["<|tool_call>", "<tool_call|>", "call:", "f", "{", "}", "a:", '<|"|>', "1", ","],
    "hermes": ["<tool_call>", "</tool_call>", '{"name": "f", "arguments": ', "{}", "}", '"', "\n"],
    "mistral": ["[TOOL_CALLS]", "[", "]", ",", '{"name": "f", "arguments": ', "{", "}", '"'],
    "llama3": ["<|python_tag|>", ";", '{"name": "f", "parameters": ', "{}", "}", '"'],
    "mistral_named": ["[TOOL_CALLS]", "f", "[CALL_ID]", "[ARGS]", "{", "}", '"', "["],
    "qwen3_coder": [
        *("<tool_call>", "</tool_call>", "<function=f>", "</function>", "<parameter=a>"),
        *("</parameter>", "<parameter=", "<", "\n", "1"),
    ],
    "seed_oss": [
        *("<seed:tool_call>", "</seed:tool_call>", "<function=f>", "</function>", "<parameter=a>"),
        *("</parameter>", "<parameter=", "<", "\n", "1"),
    ],
    "granite": ["<|tool_call|>", "[", "]", ",", '{"name": "f", "arguments": ', "{", "}", '"'],
    "command_r": [
        *("Action:", "\n", "```", "json", "[", "]", ",", "{}", "}", '"', "js"),
        *('{"tool_name": "f", "parameters": ', '{"tool_name": "directly-answer", "parameters": '),
    ],
    "lfm2": ["<|tool_call_start|>", "<|tool_call_end|>", *PYTHONIC_FRAGMENTS],
    "lfm2.5": ["<|tool_call_start|>", "<|tool_call_end|>", *PYTHONIC_FRAGMENTS],
    "pythonic": ["<|python_start|>", "<|python_end|>", *PYTHONIC_FRAGMENTS],
    "gorilla": ["<<function>>", "f(", *PYTHONIC_FRAGMENTS],
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


def test_every_tool_format_has_fragments() -> None:
    assert FRAGMENTS.keys() == FORMATS.keys()


@pytest.mark.thorough
@settings(max_examples=150)
@pytest.mark.parametrize("name", FRAGMENTS)
@given(data=st.data(), is_truncated=st.booleans())
def test_the_result_does_not_depend_on_the_chunk_sizes(
    name: str, data: st.DataObject, *, is_truncated: bool
) -> None:
    start_marker = FORMATS[name].start_marker
    fragments = st.sampled_from([*FRAGMENTS[name], start_marker, " ", "x"])
    text = "".join(data.draw(st.lists(fragments, max_size=14)))
    chunk_sizes = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=4))

    expected = parse_output(text, name, [max(len(text), 1)], is_truncated=is_truncated)
    chunked = parse_output(text, name, chunk_sizes, is_truncated=is_truncated)

    assert (chunked.content, chunked.calls) == (expected.content, expected.calls)
