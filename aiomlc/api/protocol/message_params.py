"""Messages of a chat as typed dicts, for callers' type checkers and editors."""

from __future__ import annotations

__all__ = (
    "AssistantMessageParam",
    "ChatMessageParam",
    "ImagePartParam",
    "ImageUrlParam",
    "MessageLike",
    "SystemMessageParam",
    "TextPartParam",
    "ToolCallParam",
    "ToolMessageParam",
    "UserMessageParam",
)

from collections.abc import Iterable, Mapping
from typing import Any, Literal, NotRequired, Required, TypedDict

from pydantic import BaseModel

from aiomlc.runtime.images.image_data import ImageData


class TextPartParam(TypedDict):
    """A part of a message's content."""

    type: Literal["text"]
    text: str


class ImageUrlParam(TypedDict, total=False):
    """An image: a `data:` URL or one that the operator allows, or the bytes of a file."""

    url: Required[str | bytes | ImageData]
    detail: Literal["auto", "low", "high", "original"]  #: A hint that changes nothing.


class ImagePartParam(TypedDict):
    """An image in a message's content."""

    type: Literal["image_url"]
    image_url: ImageUrlParam | str | bytes | ImageData


class SystemMessageParam(TypedDict):
    """Instructions for the model."""

    role: Literal["system", "developer"]
    content: str | Iterable[TextPartParam]
    name: NotRequired[str]


class UserMessageParam(TypedDict):
    """A message from the user."""

    role: Literal["user"]
    content: str | Iterable[TextPartParam | ImagePartParam]
    name: NotRequired[str]


class FunctionCallParam(TypedDict):
    """The function that a tool call names."""

    name: str
    arguments: str  #: A JSON object.


class ToolCallParam(TypedDict):
    """A call that the model made."""

    id: str
    type: Literal["function"]
    function: FunctionCallParam


class AssistantMessageParam(TypedDict, total=False):
    """A message from the model: text, calls, or both."""

    role: Required[Literal["assistant"]]
    content: str | Iterable[TextPartParam] | None
    reasoning_content: str | None
    tool_calls: Iterable[ToolCallParam]
    name: str


class ToolMessageParam(TypedDict):
    """The result of a tool call."""

    role: Literal["tool"]
    content: str | Iterable[TextPartParam | ImagePartParam]
    tool_call_id: str


#: A message by its role.
ChatMessageParam = SystemMessageParam | UserMessageParam | AssistantMessageParam | ToolMessageParam
#: An entry of `messages`: also another mapping, or a message of an earlier response.
MessageLike = ChatMessageParam | Mapping[str, Any] | BaseModel
