"""The wire models of the input items of the Responses API."""

from __future__ import annotations

__all__ = (
    "ImagePart",
    "Input",
    "InputCall",
    "InputCallOutput",
    "InputItem",
    "InputMessage",
    "InputReasoning",
    "TextPart",
)

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Discriminator, Field, StrictStr, Tag

from aiomlc.api.protocol.base import FIRST_ERROR, WireModel

Status = Literal["in_progress", "completed", "incomplete"]


class TextPart(WireModel):
    """A text part of a message; parts of an earlier response also have the optional fields."""

    type: Literal["input_text", "output_text", "text"]
    text: StrictStr
    annotations: tuple[Any, ...] | None = None
    logprobs: tuple[Any, ...] | None = None


class ImagePart(WireModel):
    """An image of a message."""

    type: Literal["input_image"]
    image_url: StrictStr
    detail: Literal["auto", "low", "high", "original"] | None = (
        None  #: A hint that changes nothing.
    )
    file_id: None = None  #: Not supported: there are no stored files.


def _to_parts(content: object) -> object:
    return ({"type": "text", "text": content},) if isinstance(content, str) else content


def _part_tag(part: object) -> str:
    kind = part.get("type") if isinstance(part, Mapping) else getattr(part, "type", None)
    return "image part" if kind == "input_image" else "text part"


Content = Annotated[
    tuple[
        Annotated[
            Annotated[TextPart, Tag("text part")] | Annotated[ImagePart, Tag("image part")],
            Discriminator(_part_tag),
        ],
        ...,
    ],
    FIRST_ERROR,
    BeforeValidator(_to_parts),
]


class InputMessage(WireModel):
    """A message of the user, the assistant, the system or the developer."""

    type: Literal["message"] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: Content
    id: StrictStr | None = None
    status: Status | None = None
    phase: StrictStr | None = None


class InputCall(WireModel):
    """A function call that the model generated."""

    type: Literal["function_call"]
    call_id: StrictStr
    name: StrictStr
    arguments: StrictStr
    id: StrictStr | None = None
    status: Status | None = None


class InputCallOutput(WireModel):
    """The result of a function call."""

    type: Literal["function_call_output"]
    call_id: StrictStr
    output: Content
    id: StrictStr | None = None
    status: Status | None = None


class SummaryPart(WireModel):
    """A part of a summary of reasoning."""

    type: Literal["summary_text"]
    text: StrictStr


class ReasoningPart(WireModel):
    """A part of reasoning."""

    type: Literal["reasoning_text"]
    text: StrictStr


class InputReasoning(WireModel):
    """The model's reasoning before the next item."""

    type: Literal["reasoning"]
    summary: Annotated[tuple[SummaryPart, ...], FIRST_ERROR]
    content: Annotated[tuple[ReasoningPart, ...], FIRST_ERROR] | None = None
    id: StrictStr | None = None
    status: Status | None = None
    encrypted_content: None = None  #: Not supported: only OpenAI can decrypt it.

    @property
    def text(self) -> str:
        """The text of the reasoning, or of its summary if there is no content."""
        if self.content:
            return "".join(part.text for part in self.content)

        return "\n\n".join(part.text for part in self.summary)


def _item_type(item: object) -> object:
    if isinstance(item, Mapping):
        return item.get("type", "message")

    return getattr(item, "type", None) if isinstance(item, BaseModel) else None


InputItem = Annotated[
    Annotated[InputMessage, Tag("message")]
    | Annotated[InputCall, Tag("function_call")]
    | Annotated[InputCallOutput, Tag("function_call_output")]
    | Annotated[InputReasoning, Tag("reasoning")],
    Discriminator(_item_type),
]


def _to_items(value: object) -> object:
    """Convert the input to a list of items as dicts, without fields that are None.

    A string becomes a user message. Items may be pydantic models, such as those of a response.
    """
    if isinstance(value, str):
        return ({"role": "user", "content": value},)

    if not isinstance(value, (list, tuple)):
        return value

    return [_to_fields(item) for item in value]


def _to_fields(item: object) -> object:
    if isinstance(item, BaseModel):
        return item.model_dump(exclude_none=True)

    if isinstance(item, Mapping):
        return {name: value for name, value in item.items() if value is not None}

    return item


Input = Annotated[
    tuple[InputItem, ...], FIRST_ERROR, Field(min_length=1), BeforeValidator(_to_items)
]
