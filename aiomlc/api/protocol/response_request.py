"""The request of the Responses API: its fields, their validation and the conversion to a chat."""

from __future__ import annotations

__all__ = ("ResponseRequest", "parse_response_request")

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    Discriminator,
    Field,
    StrictBool,
    StrictStr,
    Tag,
)

from aiomlc.api.protocol.base import FIRST_ERROR, NONE_IS_EMPTY, JsonObject, WireModel, parse
from aiomlc.api.protocol.chat_request import (
    ReasoningEffort,
)
from aiomlc.api.protocol.ignored import IgnoredFields, IgnoringRequest
from aiomlc.api.protocol.limits import check_sizes
from aiomlc.api.protocol.request import Name, is_noop, reject_field, with_extra_body
from aiomlc.api.protocol.response_chat import ItemChat, items_to_chat
from aiomlc.api.protocol.response_format import JsonSchema
from aiomlc.api.protocol.response_input import Input
from aiomlc.validation.parameter import Integer

# Unsupported fields, each with the values that are accepted because they have no effect. The
# engine keeps no state between requests, so fields that need stored state are unsupported.
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
# Fields with the same name in a chat request.
_SHARED_WITH_CHAT = (
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
    """A function that the model may call."""

    type: Literal["function"]
    name: StrictStr
    description: StrictStr | None = None
    parameters: JsonObject | None = None  #: The JSON schema of the arguments.
    strict: StrictBool | None = None


class FunctionChoice(WireModel):
    """The function that the model must call."""

    type: Literal["function"]
    name: StrictStr


class AllowedFunctions(WireModel):
    """The functions that the model may call; with the mode "required", it must call one."""

    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: Annotated[tuple[FunctionChoice, ...], FIRST_ERROR, Field(min_length=1)]


def _choice_tag(choice: object) -> object:
    return choice.get("type") if isinstance(choice, Mapping) else getattr(choice, "type", "mode")


FunctionToolChoice = Annotated[
    Annotated[Literal["none", "auto", "required"], Tag("mode")]
    | Annotated[FunctionChoice, Tag("function")]
    | Annotated[AllowedFunctions, Tag("allowed_tools")],
    Discriminator(_choice_tag),
]


class PlainFormat(WireModel):
    """Unconstrained text, or any JSON object."""

    type: Literal["text", "json_object"]


class SchemaFormat(JsonSchema):
    """JSON that conforms to a schema."""

    type: Literal["json_schema"]


class TextConfig(WireModel):
    """The format of the generated text."""

    format: Annotated[PlainFormat | SchemaFormat, Field(discriminator="type")] | None = None


class ReasoningConfig(WireModel):
    """The reasoning effort, which is passed to the chat template."""

    effort: ReasoningEffort | None = None
    #: Echoed only: the response has the full reasoning and no summary.
    summary: Literal["auto", "concise", "detailed"] | None = None


class ResponseRequest(IgnoringRequest):
    """A validated request for a response."""

    input: Input
    instructions: StrictStr | None = None  #: A system message before the input.
    model: Name | None = None  #: Echoed in the response.
    max_output_tokens: Annotated[int | None, Integer(ge=1)] = None
    temperature: float | None = None
    top_p: float | None = None
    tools: Annotated[tuple[FunctionTool, ...], FIRST_ERROR, NONE_IS_EMPTY] = ()
    tool_choice: FunctionToolChoice | None = None
    parallel_tool_calls: StrictBool | None = None
    text: TextConfig | None = None
    reasoning: ReasoningConfig | None = None
    stream: StrictBool | None = None
    metadata: dict[str, StrictStr] | None = None  #: Echoed in the response.
    user: StrictStr | None = None
    safety_identifier: StrictStr | None = None
    # Extensions of OpenAI's API, as in chat requests.
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    stop: StrictStr | Annotated[tuple[StrictStr, ...], FIRST_ERROR] | None = None
    chat_template_kwargs: JsonObject | None = None
    request_id: Name | None = None

    def item_chat(self) -> ItemChat:
        """Convert the instructions and the input to chat messages."""
        return items_to_chat(self.instructions, self.input)

    def chat_fields(self) -> dict[str, Any]:
        """Return the fields of the equivalent chat request."""
        fields = {name: getattr(self, name) for name in _SHARED_WITH_CHAT}
        fields["messages"] = self.item_chat().messages
        fields["max_completion_tokens"] = self.max_output_tokens
        fields["tools"] = [_to_chat_tool(tool) for tool in self.tools]
        fields["tool_choice"] = _to_chat_choice(self.tool_choice)
        fields["response_format"] = _to_chat_format(self.text)
        fields["reasoning_effort"] = self.reasoning.effort if self.reasoning else None
        fields["stream_options"] = {"include_usage": True} if self.stream else None
        return fields


def parse_response_request(
    fields: Mapping[str, Any], ignored: IgnoredFields | None = None
) -> ResponseRequest:
    """Validate the fields of a request for a response.

    Args:
        ignored: Where fields that are unknown or not supported are noted; None rejects them.

    Raises:
        BadRequestError: If a field is invalid, unknown or not supported; `param` names it.
    """
    known = {}
    for name, value in with_extra_body(fields).items():
        if name not in _NOT_SUPPORTED:
            known[name] = value
        elif not is_noop(value, _NOT_SUPPORTED[name]):
            reject_field(name, f"{name} is not supported", ignored)

    check_sizes(known)
    return parse(ResponseRequest, known, ignored).ignoring(ignored)


def _to_chat_tool(tool: FunctionTool) -> dict[str, Any]:
    return {
        "type": "function",
        "function": tool.model_dump(exclude={"type"}, exclude_none=True),
    }


def _to_chat_choice(choice: FunctionToolChoice | None) -> object:
    match choice:
        case FunctionChoice():
            return {"type": "function", "function": {"name": choice.name}}
        case AllowedFunctions():
            tools = [_to_chat_choice(tool) for tool in choice.tools]
            allowed = {"mode": choice.mode, "tools": tools}
            return {"type": "allowed_tools", "allowed_tools": allowed}
        case _:
            return choice


def _to_chat_format(text: TextConfig | None) -> dict[str, Any] | None:
    if text is None or text.format is None:
        return None

    fields = text.format.model_dump(by_alias=True, exclude_none=True)
    if isinstance(text.format, PlainFormat):
        return fields

    format_type = fields.pop("type")
    return {"type": format_type, "json_schema": fields}
