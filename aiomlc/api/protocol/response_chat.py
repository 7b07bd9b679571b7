"""Conversion of the input items of the Responses API to chat messages."""

from __future__ import annotations

__all__ = ("ItemChat", "items_to_chat")

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, final

from aiomlc.api.protocol.response_input import (
    ImagePart,
    InputCall,
    InputCallOutput,
    InputItem,
    InputMessage,
    InputReasoning,
    TextPart,
)

# The path of each chat request field in a response request, where they differ.
_RESPONSE_PATHS = {
    "max_completion_tokens": "max_output_tokens",
    "messages": "input",
    "reasoning_effort": "reasoning.effort",
    "response_format": "text.format",
    "response_format.json_schema": "text.format",
    "tool_choice.allowed_tools": "tool_choice",
}
_FUNCTION_WRAPPER = re.compile(r"(tools\[\d+\]|^tool_choice)\.function(?=\.|$)")


@final
@dataclass(slots=True)
class ItemChat:
    """The chat messages of input items, and a map from chat paths to item paths."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    paths: dict[str, str] = field(default_factory=dict)  #: Item paths by chat path.
    _reasoning: str = field(default="", init=False)  # To be attached to the next message or call.
    _reasoning_path: str = field(default="", init=False)

    def to_response_path(self, chat_path: str) -> str:
        """Convert the path of a chat request field to its path in the response request."""
        known = _RESPONSE_PATHS | self.paths
        prefixes = [path for path in known if _is_within(chat_path, path)]
        prefix = max(prefixes, key=len, default="")
        path = known.get(prefix, "") + chat_path.removeprefix(prefix)
        # Chat requests wrap a function's fields in an object; response requests do not.
        return _FUNCTION_WRAPPER.sub(r"\1", path)

    def add_instructions(self, instructions: str) -> None:
        """Add the system message that precedes all items."""
        path = self._add({"role": "system", "content": instructions}, "instructions")
        self.paths[f"{path}.content"] = "instructions"

    def add(self, item: InputItem, path: str) -> None:
        """Add the next item, whose path in the response request is `path`."""
        match item:
            case InputReasoning():
                self.flush_reasoning()
                self._reasoning, self._reasoning_path = item.text, path
            case InputMessage(role="assistant"):
                self._add_assistant_message({"content": _chat_content(item.content)}, path)
            case InputMessage():
                self.flush_reasoning()
                self._add({"role": item.role, "content": _chat_content(item.content)}, path)
            case InputCall():
                self._add_call(item, path)
            case InputCallOutput():
                self.flush_reasoning()
                chat_path = self._add(
                    {
                        "role": "tool",
                        "tool_call_id": item.call_id,
                        "content": _chat_content(item.output),
                    },
                    path,
                )
                self.paths[f"{chat_path}.tool_call_id"] = f"{path}.call_id"
                self.paths[f"{chat_path}.content"] = f"{path}.output"

    def flush_reasoning(self) -> None:
        """Add reasoning that no message or call follows, as a message without content."""
        if self._reasoning:
            self._add_assistant_message({"content": ""}, self._reasoning_path)

    def _add_assistant_message(self, fields: dict[str, Any], path: str) -> None:
        if self._reasoning:
            fields["reasoning_content"] = self._reasoning

        chat_path = self._add({"role": "assistant", **fields}, path)
        if self._reasoning:
            self.paths[f"{chat_path}.reasoning_content"] = f"{self._reasoning_path}.content"
            self._reasoning = ""

    def _add_call(self, item: InputCall, path: str) -> None:
        # Consecutive calls, and the assistant's text before them, form one message.
        if self._reasoning or not self.messages or self.messages[-1]["role"] != "assistant":
            self._add_assistant_message({}, path)

        calls: list[dict[str, Any]] = self.messages[-1].setdefault("tool_calls", [])
        chat_path = f"messages[{len(self.messages) - 1}].tool_calls[{len(calls)}]"
        self.paths |= {
            chat_path: path,
            f"{chat_path}.function": path,
            f"{chat_path}.id": f"{path}.call_id",
        }
        calls.append(_to_tool_call(item))

    def _add(self, message: dict[str, Any], path: str) -> str:
        chat_path = f"messages[{len(self.messages)}]"
        self.messages.append(message)
        self.paths[chat_path] = path
        return chat_path


def items_to_chat(instructions: str | None, items: Iterable[InputItem]) -> ItemChat:
    """Convert instructions and input items to chat messages."""
    chat = ItemChat()
    if instructions is not None:
        chat.add_instructions(instructions)

    for index, item in enumerate(items):
        chat.add(item, f"input[{index}]")

    chat.flush_reasoning()
    return chat


def _is_within(path: str, prefix: str) -> bool:
    return path == prefix or path.startswith((f"{prefix}.", f"{prefix}["))


def _to_tool_call(item: InputCall) -> dict[str, Any]:
    return {
        "id": item.call_id,
        "type": "function",
        "function": {"name": item.name, "arguments": item.arguments},
    }


def _chat_content(content: tuple[TextPart | ImagePart, ...]) -> str | list[dict[str, Any]]:
    """Return one text as it is, and several parts or an image as the parts of a chat message."""
    match content:
        case ():
            return ""
        case (TextPart() as part,):
            return part.text
        case _:
            return list(map(_chat_part, content))


def _chat_part(part: TextPart | ImagePart) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}

    return {"type": "image_url", "image_url": part.image_url}
