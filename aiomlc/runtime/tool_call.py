"""The calls of tools in a history: as mappings, and as the text that a model writes."""

from __future__ import annotations

__all__ = ("with_arguments", "write_tool_calls")

import json
from collections.abc import Mapping, Sequence
from typing import Any

from aiomlc.errors import BadRequestError
from aiomlc.runtime.tool_format import ToolFormat


def with_arguments(call: Mapping[str, Any]) -> dict[str, Any]:
    """A tool call whose arguments are the mapping that templates expect, not its JSON text.

    Raises:
        BadRequestError: the arguments are not JSON.
    """
    function = dict(call.get("function") or {})
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            function["arguments"] = json.loads(arguments or "{}")
        except ValueError as error:
            raise BadRequestError(
                f"the arguments of a tool call are not JSON: {error}", param="messages"
            ) from error

    return {**call, "function": function}


def write_tool_calls(tool_format: ToolFormat, calls: Sequence[Mapping[str, Any]]) -> str:
    """Calls as a model of that form writes them.

    Raises:
        BadRequestError: the arguments of a call are not JSON.
    """
    key = "parameters" if any('"parameters"' in text for text in tool_format.shown) else "arguments"
    objects = []
    for call in calls:
        function = with_arguments(call)["function"]
        fields = {"name": function["name"], key: function["arguments"]}
        objects.append(json.dumps(fields, ensure_ascii=False))

    begin, end = tool_format.begin, tool_format.end
    if end:
        return "\n".join(f"{begin}\n{text}\n{end}" for text in objects)

    if "[" in tool_format.between:
        return f"{begin}[{', '.join(objects)}]"

    return begin + "; ".join(objects)
