"""The messages of a conversation, as a caller sends them."""

from __future__ import annotations

__all__ = (
    "AssistantMessage",
    "DeveloperMessage",
    "Message",
    "SystemMessage",
    "ToolCall",
    "ToolMessage",
    "UserMessage",
)

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from aiomlc.api.protocol.base import WireModel


def _joined_text(content: object) -> object:
    """Text as it is, and a list of text parts as one text."""
    if isinstance(content, (str, bytes)) or not isinstance(content, Sequence):
        return content

    return "".join(_part_text(part) for part in content)


def _part_text(part: object) -> str:
    if not isinstance(part, Mapping):
        raise ValueError("a content part is not an object")

    if (kind := part.get("type")) != "text":
        raise ValueError(f"a content part of type {kind!r} is not supported yet")

    text = part.get("text")
    if not isinstance(text, str) or set(part) != {"type", "text"}:
        raise ValueError("a text part has the fields 'type' and 'text', and no other")

    return text


Text = Annotated[str, BeforeValidator(_joined_text)]


class FunctionCall(WireModel):
    """The function the model called; `arguments` is JSON text."""

    name: str
    arguments: str


class ToolCall(WireModel):
    """A call the model made in an earlier turn."""

    id: str
    type: Literal["function"] = "function"
    function: FunctionCall


class SystemMessage(WireModel):
    """What the model is told before the conversation."""

    role: Literal["system"]
    content: Text
    name: str | None = None


class DeveloperMessage(WireModel):
    """A system message by its newer name."""

    role: Literal["developer"]
    content: Text
    name: str | None = None


class UserMessage(WireModel):
    """What the user says."""

    role: Literal["user"]
    content: Text
    name: str | None = None


class AssistantMessage(WireModel):
    """What the model said: text, calls of tools, or both."""

    role: Literal["assistant"]
    content: Text | None = None
    refusal: str | None = None
    name: str | None = None
    reasoning_content: str | None = None  #: What it thought before; `reasoning` is the same.
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.content is None and self.refusal is None and not self.tool_calls:
            raise ValueError("an assistant message needs content or tool_calls")

        return self


class ToolMessage(WireModel):
    """What a tool answered."""

    role: Literal["tool"]
    content: Text
    tool_call_id: str
    name: str | None = None


Message = Annotated[
    SystemMessage | DeveloperMessage | UserMessage | AssistantMessage | ToolMessage,
    Field(discriminator="role"),
]
