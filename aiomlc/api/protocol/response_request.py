"""A request for a response: the fields we honour, and those we refuse by name."""

from __future__ import annotations

__all__ = ("ResponseRequest", "parse_response_request")

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    Discriminator,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
    Tag,
)

from aiomlc.api.protocol.base import NONE_IS_EMPTY, JsonObject, WireModel, parse
from aiomlc.api.protocol.chat_request import (
    ChatCompletionRequest,
    ReasoningEffort,
    parse_chat_request,
)
from aiomlc.api.protocol.request import is_noop, with_extra_body
from aiomlc.api.protocol.response_chat import ItemChat, chat_of
from aiomlc.api.protocol.response_format import JsonSchema
from aiomlc.api.protocol.response_input import Input
from aiomlc.errors import BadRequestError

# Nothing is kept from one request to the next: what needs a memory is refused.
_NOT_SUPPORTED: dict[str, tuple[object, ...]] = {
    "access_programs": (),
    "background": (False,),
    "background_options": (),
    "context_management": (),
    "conversation": (),
    "image": (),
    "include": ([], ()),
    "max_tool_calls": (),
    "moderation": (),
    "previous_response_id": (),
    "prompt": (),
    "prompt_cache_key": (),
    "prompt_cache_options": (),
    "prompt_cache_retention": (),
    "service_tier": ("auto", "default"),
    "store": (False,),
    "stream_options": ({},),
    "top_logprobs": (0,),
    "truncation": ("disabled",),
}
# Fields that chat has by the same name.
_AS_IN_CHAT = (
    "model",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "seed",
    "stop",
    "chat_template_kwargs",
    "parallel_tool_calls",
    "request_id",
    "stream",
)


class FunctionTool(WireModel):
    """A function the model may call; `parameters` is a JSON schema of its arguments."""

    type: Literal["function"]
    name: StrictStr
    description: StrictStr | None = None
    parameters: JsonObject | None = None
    strict: StrictBool | None = None


class FunctionChoice(WireModel):
    """The function that must be called."""

    type: Literal["function"]
    name: StrictStr


class AllowedFunctions(WireModel):
    """The functions that may be called, and whether one of them must be."""

    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: Annotated[tuple[FunctionChoice, ...], Field(min_length=1)]


def _kind(choice: object) -> object:
    return choice.get("type") if isinstance(choice, Mapping) else getattr(choice, "type", "mode")


FunctionToolChoice = Annotated[
    Annotated[Literal["none", "auto", "required"], Tag("mode")]
    | Annotated[FunctionChoice, Tag("function")]
    | Annotated[AllowedFunctions, Tag("allowed_tools")],
    Discriminator(_kind),
]


class PlainFormat(WireModel):
    """Any text, or any JSON object."""

    type: Literal["text", "json_object"]


class SchemaFormat(JsonSchema):
    """JSON that a schema describes."""

    type: Literal["json_schema"]


class TextConfig(WireModel):
    """What the text must be."""

    format: Annotated[PlainFormat | SchemaFormat, Field(discriminator="type")] | None = None


class ReasoningConfig(WireModel):
    """How much to think, which is told to the template."""

    effort: ReasoningEffort | None = None
    #: Echoed: the thoughts are told as they are, and never summarised.
    summary: Literal["auto", "concise", "detailed"] | None = None


class ResponseRequest(WireModel):
    """A validated request."""

    input: Input
    instructions: StrictStr | None = None  #: A system message before the input.
    model: StrictStr | None = None  #: Echoed in the answer.
    max_output_tokens: Annotated[StrictInt, Field(ge=1)] | None = None
    temperature: float | None = None
    top_p: float | None = None
    tools: Annotated[tuple[FunctionTool, ...], NONE_IS_EMPTY] = ()
    tool_choice: FunctionToolChoice | None = None
    parallel_tool_calls: StrictBool | None = None
    text: TextConfig | None = None
    reasoning: ReasoningConfig | None = None
    stream: StrictBool | None = None
    metadata: dict[str, StrictStr] | None = None  #: Echoed in the answer.
    user: StrictStr | None = None
    safety_identifier: StrictStr | None = None
    # Ours, as in chat.
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    stop: StrictStr | tuple[StrictStr, ...] | None = None
    chat_template_kwargs: JsonObject | None = None
    request_id: StrictStr | None = None

    def item_chat(self) -> ItemChat:
        """The chat that the instructions and the input are."""
        return chat_of(self.instructions, self.input)

    def as_chat(self) -> ChatCompletionRequest:
        """The chat that answers this.

        Raises:
            BadRequestError: a value is out of range; `param` names the field.
        """
        fields = {name: getattr(self, name) for name in _AS_IN_CHAT}
        fields["messages"] = self.item_chat().messages
        fields["max_completion_tokens"] = self.max_output_tokens
        fields["tools"] = [_chat_tool(tool) for tool in self.tools]
        fields["tool_choice"] = _chat_choice(self.tool_choice)
        fields["response_format"] = _chat_format(self.text)
        fields["reasoning_effort"] = self.reasoning.effort if self.reasoning else None
        fields["stream_options"] = {"include_usage": True} if self.stream else None
        return parse_chat_request(fields)


def parse_response_request(fields: Mapping[str, Any]) -> ResponseRequest:
    """Validate a request's fields.

    Raises:
        BadRequestError: a field is invalid, unknown or not supported; `param` names it.
    """
    known = {}
    for name, value in with_extra_body(fields).items():
        if name not in _NOT_SUPPORTED:
            known[name] = value
        elif not is_noop(value, _NOT_SUPPORTED[name]):
            raise BadRequestError(f"{name} is not supported", param=name)

    return parse(ResponseRequest, known)


def _chat_tool(tool: FunctionTool) -> dict[str, Any]:
    return {
        "type": "function",
        "function": tool.model_dump(exclude={"type"}, exclude_none=True),
    }


def _chat_choice(choice: FunctionToolChoice | None) -> object:
    match choice:
        case FunctionChoice():
            return {"type": "function", "function": {"name": choice.name}}
        case AllowedFunctions():
            tools = [_chat_choice(tool) for tool in choice.tools]
            allowed = {"mode": choice.mode, "tools": tools}
            return {"type": "allowed_tools", "allowed_tools": allowed}
        case _:
            return choice


def _chat_format(text: TextConfig | None) -> dict[str, Any] | None:
    if text is None or text.format is None:
        return None

    fields = text.format.model_dump(by_alias=True, exclude_none=True)
    if isinstance(text.format, PlainFormat):
        return fields

    kind = fields.pop("type")
    return {"type": kind, "json_schema": fields}
