"""Conversion of the tool calls in a chat history: to mappings, and to a model's own format."""

from __future__ import annotations

__all__ = ("render_tool_calls", "with_parsed_arguments")

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from aiomlc.errors import BadRequestError
from aiomlc.runtime.output_formats.tool_format import ToolFormat
from aiomlc.runtime.output_formats.tool_syntax.syntax import HistoryCall
from aiomlc.validation.json_values import read_json


def with_parsed_arguments(call: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a tool call with its JSON arguments parsed, as chat templates expect.

    No arguments are an empty object. Arguments that are not JSON stay a string: a model may write
    such a call, and is then to see it.
    """
    function = dict(call.get("function") or {})
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        with suppress(ValueError):
            arguments = read_json(arguments or "{}")

    function["arguments"] = {} if arguments is None else arguments

    return {**call, "function": function}


def render_tool_calls(tool_format: ToolFormat, calls: Sequence[Mapping[str, Any]]) -> str:
    """Return tool calls as the text that a model with this format generates.

    Raises:
        BadRequestError: If the arguments of a call are not a JSON object.
    """
    functions = [with_parsed_arguments(call)["function"] for call in calls]
    for function in functions:
        if not isinstance(function["arguments"], Mapping):
            raise BadRequestError(
                "messages: the 'arguments' of a tool call must be a JSON object",
                param="messages",
            )

    history = [HistoryCall(function["name"], function["arguments"]) for function in functions]
    start, end = tool_format.start_marker, tool_format.end_marker
    bodies = tool_format.syntax.render(history)
    return (tool_format.separator or "").join(f"{start}{body}{end}" for body in bodies)
