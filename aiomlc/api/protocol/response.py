"""A response and its events: `model_dump()` of each is OpenAI's JSON."""

from __future__ import annotations

__all__ = (
    "FunctionCallItem",
    "MessageItem",
    "OutputText",
    "ReasoningItem",
    "ReasoningText",
    "Response",
    "ResponseEvent",
    "ResponseUsage",
)

from typing import Annotated, Any, Literal

from pydantic import Field

from aiomlc.api.protocol.base import WireModel

Status = Literal["in_progress", "completed", "incomplete"]


def _is_none(value: object) -> bool:
    return value is None


class OutputText(WireModel):
    """The text of a message."""

    type: Literal["output_text"] = "output_text"
    text: str
    annotations: list[Any] = Field(default_factory=list)
    logprobs: list[Any] = Field(default_factory=list)


class ReasoningText(WireModel):
    """The text of thoughts."""

    type: Literal["reasoning_text"] = "reasoning_text"
    text: str


class ReasoningItem(WireModel):
    """What the model thought before it answered."""

    type: Literal["reasoning"] = "reasoning"
    id: str
    summary: list[Any] = Field(default_factory=list)  #: Always empty: the thoughts are there.
    content: list[ReasoningText]
    status: Status


class MessageItem(WireModel):
    """What the model said."""

    type: Literal["message"] = "message"
    id: str
    role: Literal["assistant"] = "assistant"
    status: Status
    content: list[OutputText]


class FunctionCallItem(WireModel):
    """A function the model wants called; `arguments` is JSON text."""

    type: Literal["function_call"] = "function_call"
    id: str
    call_id: str
    name: str
    arguments: str
    status: Status


OutputItem = Annotated[ReasoningItem | MessageItem | FunctionCallItem, Field(discriminator="type")]


class InputTokensDetails(WireModel):
    """Where the prompt's tokens came from."""

    cached_tokens: int
    cache_write_tokens: int = 0


class OutputTokensDetails(WireModel):
    """What the answer's tokens were for."""

    reasoning_tokens: int = 0  #: As `Usage` counts them.


class ResponseUsage(WireModel):
    """Tokens of a response."""

    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails = OutputTokensDetails()
    total_tokens: int


class IncompleteDetails(WireModel):
    """Why a response is incomplete."""

    reason: Literal["max_output_tokens"]


class Response(WireModel):
    """An answer, whole or as far as it has come. The request's own fields are echoed."""

    id: str
    object: Literal["response"] = "response"
    created_at: int  #: Unix time in seconds.
    status: Status
    error: None = None
    incomplete_details: IncompleteDetails | None = None
    instructions: str | None
    max_output_tokens: int | None
    metadata: dict[str, str]
    model: str
    output: list[OutputItem]
    parallel_tool_calls: bool
    previous_response_id: None = None
    reasoning: Annotated[dict[str, Any] | None, Field(exclude_if=_is_none)] = None
    temperature: float | None
    text: dict[str, Any]
    tool_choice: str | dict[str, Any]
    tools: list[dict[str, Any]]
    top_p: float | None
    truncation: Literal["disabled"] = "disabled"
    usage: ResponseUsage | None = None

    @property
    def output_text(self) -> str:
        """The texts of all messages, joined."""
        messages = [item for item in self.output if isinstance(item, MessageItem)]
        return "".join(part.text for message in messages for part in message.content)


class ResponseEvent(WireModel):
    """One event of a stream; which of the fields there are depends on `type`."""

    type: Literal[
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.reasoning_text.delta",
        "response.reasoning_text.done",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.completed",
        "response.incomplete",
    ]
    sequence_number: int  #: 0, 1, 2 and so on.
    response: Annotated[Response | None, Field(exclude_if=_is_none)] = None
    output_index: Annotated[int | None, Field(exclude_if=_is_none)] = None
    item: Annotated[OutputItem | None, Field(exclude_if=_is_none)] = None
    item_id: Annotated[str | None, Field(exclude_if=_is_none)] = None
    content_index: Annotated[int | None, Field(exclude_if=_is_none)] = None
    part: Annotated[OutputText | ReasoningText | None, Field(exclude_if=_is_none)] = None
    delta: Annotated[str | None, Field(exclude_if=_is_none)] = None
    text: Annotated[str | None, Field(exclude_if=_is_none)] = None
    arguments: Annotated[str | None, Field(exclude_if=_is_none)] = None
    logprobs: Annotated[list[Any] | None, Field(exclude_if=_is_none)] = None
