"""The chat messages that the items of OpenAI's Responses mean."""

from __future__ import annotations

__all__ = ("ItemChat", "chat_of")

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, final

from aiomlc.api.protocol.response_input import (
    InputCall,
    InputCallOutput,
    InputItem,
    InputMessage,
    InputReasoning,
    TextPart,
)

# Where a chat says what a response says elsewhere.
_PATHS = {
    "max_completion_tokens": "max_output_tokens",
    "messages": "input",
    "reasoning_effort": "reasoning.effort",
    "response_format": "text.format",
    "response_format.json_schema": "text.format",
    "tool_choice.allowed_tools": "tool_choice",
}
_FUNCTION = re.compile(r"(tools\[\d+\]|^tool_choice)\.function(?=\.|$)")


@final
@dataclass(slots=True)
class ItemChat:
    """The chat that items are, and where in the items each part of it was said."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    paths: dict[str, str] = field(default_factory=dict)  #: By the path in the chat.
    _thoughts: str = field(default="", init=False)  # Before the next message or call.
    _path_of_thoughts: str = field(default="", init=False)

    def path(self, chat_path: str) -> str:
        """Where a response says what is at a path of the chat's request."""
        known = _PATHS | self.paths
        starts = [one for one in known if _is_within(chat_path, one)]
        start = max(starts, key=len, default="")
        path = known.get(start, "") + chat_path.removeprefix(start)
        # Chat wraps what names a function; a response does not.
        return _FUNCTION.sub(r"\1", path)

    def instruct(self, instructions: str) -> None:
        """Begin with a system message."""
        path = self._add({"role": "system", "content": instructions}, "instructions")
        self.paths[f"{path}.content"] = "instructions"

    def add(self, item: InputItem, path: str) -> None:
        """Add the next item, which stands at `path`."""
        match item:
            case InputReasoning():
                self.end_thoughts()
                self._thoughts, self._path_of_thoughts = item.text, path
            case InputMessage(role="assistant"):
                self._answer({"content": _text(item.content)}, path)
            case InputMessage():
                self.end_thoughts()
                self._add({"role": item.role, "content": _text(item.content)}, path)
            case InputCall():
                self._call(item, path)
            case InputCallOutput():
                self.end_thoughts()
                at = self._add(
                    {
                        "role": "tool",
                        "tool_call_id": item.call_id,
                        "content": _text(item.output),
                    },
                    path,
                )
                self.paths[f"{at}.tool_call_id"] = f"{path}.call_id"
                self.paths[f"{at}.content"] = f"{path}.output"

    def end_thoughts(self) -> None:
        """Thoughts that no answer followed are a turn without one."""
        if self._thoughts:
            self._answer({"content": ""}, self._path_of_thoughts)

    def _answer(self, fields: dict[str, Any], path: str) -> None:
        if self._thoughts:
            fields["reasoning_content"] = self._thoughts

        at = self._add({"role": "assistant", **fields}, path)
        if self._thoughts:
            self.paths[f"{at}.reasoning_content"] = f"{self._path_of_thoughts}.content"
            self._thoughts = ""

    def _call(self, item: InputCall, path: str) -> None:
        # Calls in a row are one turn, with what was said before them.
        if self._thoughts or not self.messages or self.messages[-1]["role"] != "assistant":
            self._answer({}, path)

        calls: list[dict[str, Any]] = self.messages[-1].setdefault("tool_calls", [])
        at = f"messages[{len(self.messages) - 1}].tool_calls[{len(calls)}]"
        self.paths |= {at: path, f"{at}.function": path, f"{at}.id": f"{path}.call_id"}
        calls.append(_call(item))

    def _add(self, message: dict[str, Any], path: str) -> str:
        at = f"messages[{len(self.messages)}]"
        self.messages.append(message)
        self.paths[at] = path
        return at


def chat_of(instructions: str | None, items: Iterable[InputItem]) -> ItemChat:
    """The chat that the items are."""
    chat = ItemChat()
    if instructions is not None:
        chat.instruct(instructions)

    for number, item in enumerate(items):
        chat.add(item, f"input[{number}]")

    chat.end_thoughts()
    return chat


def _is_within(path: str, start: str) -> bool:
    return path == start or path.startswith((f"{start}.", f"{start}["))


def _call(item: InputCall) -> dict[str, Any]:
    return {
        "id": item.call_id,
        "type": "function",
        "function": {"name": item.name, "arguments": item.arguments},
    }


def _text(content: tuple[TextPart, ...]) -> str:
    return "".join(part.text for part in content)
