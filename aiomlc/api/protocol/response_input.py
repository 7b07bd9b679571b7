"""What a response is asked: the items of OpenAI's Responses."""

from __future__ import annotations

__all__ = (
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

from aiomlc.api.protocol.base import WireModel

Status = Literal["in_progress", "completed", "incomplete"]


class TextPart(WireModel):
    """A part of a message; an answer's own parts come back with more fields."""

    type: Literal["input_text", "output_text", "text"]
    text: StrictStr
    annotations: tuple[Any, ...] | None = None
    logprobs: tuple[Any, ...] | None = None


def _as_parts(content: object) -> object:
    return ({"type": "text", "text": content},) if isinstance(content, str) else content


Content = Annotated[tuple[TextPart, ...], BeforeValidator(_as_parts)]


class InputMessage(WireModel):
    """What somebody said."""

    type: Literal["message"] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: Content
    id: StrictStr | None = None
    status: Status | None = None
    phase: StrictStr | None = None


class InputCall(WireModel):
    """A call that the model made."""

    type: Literal["function_call"]
    call_id: StrictStr
    name: StrictStr
    arguments: StrictStr
    id: StrictStr | None = None
    status: Status | None = None


class InputCallOutput(WireModel):
    """What a called function returned."""

    type: Literal["function_call_output"]
    call_id: StrictStr
    output: Content
    id: StrictStr | None = None
    status: Status | None = None


class SummaryPart(WireModel):
    """A part of a summary of thoughts."""

    type: Literal["summary_text"]
    text: StrictStr


class ThoughtPart(WireModel):
    """A part of thoughts."""

    type: Literal["reasoning_text"]
    text: StrictStr


class InputReasoning(WireModel):
    """What the model thought before the next item."""

    type: Literal["reasoning"]
    summary: tuple[SummaryPart, ...]
    content: tuple[ThoughtPart, ...] | None = None
    id: StrictStr | None = None
    status: Status | None = None
    encrypted_content: None = None  #: Only who wrote it can read it.

    @property
    def text(self) -> str:
        """The thoughts, or a summary where that is all there is."""
        if self.content:
            return "".join(part.text for part in self.content)

        return "\n\n".join(part.text for part in self.summary)


def _kind(item: object) -> object:
    if isinstance(item, Mapping):
        return item.get("type", "message")

    return getattr(item, "type", None)


InputItem = Annotated[
    Annotated[InputMessage, Tag("message")]
    | Annotated[InputCall, Tag("function_call")]
    | Annotated[InputCallOutput, Tag("function_call_output")]
    | Annotated[InputReasoning, Tag("reasoning")],
    Discriminator(_kind),
]


def _as_items(value: object) -> object:
    """A text is what a user says; items that are models, like an answer's own, are fields.

    Fields that are None say nothing, and are not there.
    """
    if isinstance(value, str):
        return ({"role": "user", "content": value},)

    if not isinstance(value, (list, tuple)):
        return value

    return [_as_fields(item) for item in value]


def _as_fields(item: object) -> object:
    if isinstance(item, BaseModel):
        return item.model_dump(exclude_none=True)

    if isinstance(item, Mapping):
        return {name: value for name, value in item.items() if value is not None}

    return item


Input = Annotated[tuple[InputItem, ...], Field(min_length=1), BeforeValidator(_as_items)]
