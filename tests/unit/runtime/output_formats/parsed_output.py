"""Helpers for tests of tool calls: parsed output, and calls as model families write them."""

# ruff: noqa: RUF001 - DeepSeek's markers contain characters that look like ASCII.

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import cycle
from typing import Any

from aiomlc.api.chat.tool_parser import ToolCallParser
from aiomlc.runtime.output_formats.tool_format import TOOL_FORMATS

FORMATS = {tool_format.name: tool_format for tool_format in TOOL_FORMATS}
#: The JSON schemas of the arguments, by function name; other functions have no schema.
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


class ParsedOutput:
    """The content and the tool calls of a completion, concatenated from its deltas."""

    def __init__(self, deltas: list[dict[str, Any]]) -> None:
        self.content = "".join(delta.get("content", "") for delta in deltas)
        self.calls: list[tuple[str, str]] = []
        self.ids: list[str] = []
        for delta in deltas:
            for call in delta.get("tool_calls", ()):
                self._add(call)

    def _add(self, call: dict[str, Any]) -> None:
        function = call["function"]
        if "id" in call:
            assert call["index"] == len(self.calls)
            assert call["type"] == "function"
            self.ids.append(call["id"])
            self.calls.append((function["name"], function["arguments"]))
        else:
            assert call["index"] == len(self.calls) - 1
            name, arguments = self.calls[-1]
            self.calls[-1] = name, arguments + function["arguments"]


def qwen_call(name: str, **arguments: str) -> str:
    """Return a call as Qwen3-Coder writes it."""
    parameters = "".join(
        f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in arguments.items()
    )
    return f"<tool_call>\n<function={name}>\n{parameters}</function>\n</tool_call>"


def seed_call(name: str, **arguments: str) -> str:
    """Return a call as Seed-OSS writes it."""
    parameters = "".join(
        f"<parameter={key}>{value}</parameter>\n" for key, value in arguments.items()
    )
    return f"<seed:tool_call>\n<function={name}>\n{parameters}</function>\n</seed:tool_call>"


def action(calls: str, space: str = "\n") -> str:
    """Return a list of calls as Command R writes it."""
    return f"Action:{space}```json\n[\n    {calls}\n]```"


def glm_call(name: str, **arguments: str) -> str:
    """Return a call as GLM 4.5 writes it."""
    parameters = "".join(
        f"<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n"
        for key, value in arguments.items()
    )
    return f"<tool_call>{name}\n{parameters}</tool_call>"


def v3_call(name: str, arguments: str) -> str:
    """Return a call as DeepSeek V3 writes it, without the markers around all calls."""
    call = f"function<｜tool▁sep｜>{name}\n```json\n{arguments}\n```"
    return f"<｜tool▁call▁begin｜>{call}<｜tool▁call▁end｜>"


def v3_calls(*calls: str) -> str:
    """Return the calls of `v3_call` between the markers of DeepSeek V3."""
    return f"<｜tool▁calls▁begin｜>{chr(10).join(calls)}<｜tool▁calls▁end｜>"


def v31_call(name: str, arguments: str) -> str:
    """Return a call as DeepSeek V3.1 writes it, without the markers around all calls."""
    return f"<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{arguments}<｜tool▁call▁end｜>"


def v31_calls(*calls: str) -> str:
    """Return the calls of `v31_call` between the markers of DeepSeek V3.1."""
    return f"<｜tool▁calls▁begin｜>{''.join(calls)}<｜tool▁calls▁end｜>"


def split_text(text: str, sizes: Iterable[int]) -> Iterator[str]:
    """Yield the chunks of a text, whose sizes repeat in a cycle."""
    position = 0
    for size in cycle(sizes):
        if position >= len(text):
            return

        yield text[position : position + size]
        position += size


def parse_output(
    text: str, name: str, sizes: Iterable[int], *, is_truncated: bool = False
) -> ParsedOutput:
    """Parse a completion, in chunks of these sizes, with the tool format of that name."""
    parser = ToolCallParser(FORMATS[name], PARAMETERS)
    deltas = [delta for chunk in split_text(text, sizes) for delta in parser.put(chunk)]
    return ParsedOutput([*deltas, *parser.finish(is_truncated=is_truncated)])
