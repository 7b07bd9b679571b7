"""The calls of tools in a history: as mappings, and as the text that a model writes."""

from __future__ import annotations

__all__ = ("with_arguments", "write_tool_calls")

from collections.abc import Mapping, Sequence
from typing import Any

from aiomlc.errors import BadRequestError
from aiomlc.runtime.output_formats.tool_format import ToolFormat
from aiomlc.runtime.output_formats.tool_syntax.syntax import HistoryCall
from aiomlc.validation.json_values import read_json


def with_arguments(call: Mapping[str, Any]) -> dict[str, Any]:
    """A tool call whose arguments are the mapping that templates expect, not its JSON text.

    Raises:
        BadRequestError: the arguments are not JSON.
    """
    function = dict(call.get("function") or {})
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            function["arguments"] = read_json(arguments or "{}")
        except ValueError as error:
            raise BadRequestError(
                f"messages: the text of the arguments of a tool call {error}", param="messages"
            ) from error

    return {**call, "function": function}


def write_tool_calls(tool_format: ToolFormat, calls: Sequence[Mapping[str, Any]]) -> str:
    """Calls as a model of that form writes them.

    Raises:
        BadRequestError: the arguments of a call are no JSON object.
    """
    functions = [with_arguments(call)["function"] for call in calls]
    for function in functions:
        if not isinstance(function["arguments"], Mapping):
            raise BadRequestError(
                "messages: the text of the arguments of a tool call is no JSON object",
                param="messages",
            )

    past = [HistoryCall(function["name"], function["arguments"]) for function in functions]
    begin, end = tool_format.start_marker, tool_format.end_marker
    bodies = tool_format.syntax.write(past)
    return (tool_format.separator or "").join(f"{begin}{body}{end}" for body in bodies)
