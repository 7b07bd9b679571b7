"""Answers with calls of tools: put together from their deltas, and as models write them."""

from __future__ import annotations

from typing import Any


class Read:
    """What an answer says, put together from its deltas."""

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


def qwen(name: str, **arguments: str) -> str:
    given = "".join(
        f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in arguments.items()
    )
    return f"<tool_call>\n<function={name}>\n{given}</function>\n</tool_call>"


def glm(name: str, **arguments: str) -> str:
    given = "".join(
        f"<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n"
        for key, value in arguments.items()
    )
    return f"<tool_call>{name}\n{given}</tool_call>"
