"""What a response is asked: the items of OpenAI's Responses, and the chat messages they mean."""

from __future__ import annotations

__all__ = ("Input", "as_messages")

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Discriminator, Field, StrictStr, Tag

from aiomlc.api.protocol.wire import WireModel

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


def _kind(item: object) -> object:
    if isinstance(item, Mapping):
        return item.get("type", "message")

    return getattr(item, "type", None)


InputItem = Annotated[
    Annotated[InputMessage, Tag("message")]
    | Annotated[InputCall, Tag("function_call")]
    | Annotated[InputCallOutput, Tag("function_call_output")],
    Discriminator(_kind),
]


def _as_items(value: object) -> object:
    """A text is what a user says; items that are models, like an answer's own, are fields."""
    if isinstance(value, str):
        return ({"role": "user", "content": value},)

    if not isinstance(value, (list, tuple)):
        return value

    return [
        item.model_dump(exclude_none=True) if isinstance(item, BaseModel) else item
        for item in value
    ]


Input = Annotated[tuple[InputItem, ...], Field(min_length=1), BeforeValidator(_as_items)]


def as_messages(instructions: str | None, items: Iterable[InputItem]) -> list[dict[str, Any]]:
    """The chat that the items are; calls in a row are one turn of the assistant's."""
    messages: list[dict[str, Any]] = []
    if instructions is not None:
        messages.append({"role": "system", "content": instructions})

    for item in items:
        match item:
            case InputMessage():
                messages.append({"role": item.role, "content": _text(item.content)})
            case InputCall():
                _turn_of_calls(messages).append(_call(item))
            case InputCallOutput():
                messages.append(
                    {
                        "role": "tool",
                        "tool_call_id": item.call_id,
                        "content": _text(item.output),
                    }
                )

    return messages


def _turn_of_calls(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant"})

    calls: list[dict[str, Any]] = messages[-1].setdefault("tool_calls", [])
    return calls


def _call(item: InputCall) -> dict[str, Any]:
    return {
        "id": item.call_id,
        "type": "function",
        "function": {"name": item.name, "arguments": item.arguments},
    }


def _text(content: tuple[TextPart, ...]) -> str:
    return "".join(part.text for part in content)
