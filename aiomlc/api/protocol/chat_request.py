"""A chat completion request: the fields we honour, and those we refuse by name."""

from __future__ import annotations

__all__ = (
    "ChatCompletionRequest",
    "ReasoningEffort",
    "parse_chat_request",
    "parse_event_request",
)

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, StrictBool, StrictInt

from aiomlc.api.protocol.base import NONE_IS_EMPTY, JsonObject
from aiomlc.api.protocol.messages import Message
from aiomlc.api.protocol.request import (
    GenerationRequest,
    Int64,
    is_noop,
    parse_request,
    with_extra_body,
)
from aiomlc.api.protocol.response_format import ResponseFormat
from aiomlc.api.protocol.tools import AllowedTools, NamedTool, Tool, ToolChoice
from aiomlc.errors import BadRequestError

ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]

# Fields of OpenAI's, and of servers like it, with the values that ask for nothing we do not do.
_NOT_SUPPORTED: dict[str, tuple[object, ...]] = {
    "audio": (),
    "best_of": (1,),
    "cache_salt": (),
    "debug_config": (),
    "echo": (False,),
    "function_call": (),
    "functions": ([], ()),
    "include_stop_str_in_output": (False,),
    "modalities": (["text"], ("text",)),
    "moderation": (),
    "prediction": (),
    "prompt_cache_key": (),
    "prompt_cache_options": (),
    "prompt_cache_retention": (),
    "return_token_ids": (False,),
    "service_tier": ("auto", "default"),
    "store": (False,),
    "suffix": (),
    "verbosity": (),
    "web_search_options": (),
}
# Of them it is said what they have to be; others are not there if they are None.
_NEEDED_OF_MESSAGES = frozenset({"role", "content"})


class ChatCompletionRequest(GenerationRequest):
    """A validated chat."""

    messages: Annotated[tuple[Message, ...], Field(min_length=1)]
    n: Annotated[StrictInt, Field(ge=1, le=128)] | None = None  #: Choices; None is one.
    tools: Annotated[tuple[Tool, ...], NONE_IS_EMPTY] = ()
    tool_choice: ToolChoice | None = None  #: None is "auto".
    parallel_tool_calls: StrictBool | None = None  #: False: one call at most.
    response_format: ResponseFormat | None = None  #: None is any text.
    max_completion_tokens: Annotated[Int64, Field(ge=1)] | None = None
    logprobs: StrictBool | None = None
    top_logprobs: Annotated[StrictInt, Field(ge=0, le=20)] | None = None
    reasoning_effort: ReasoningEffort | None = None  #: Told to the template.
    chat_template_kwargs: JsonObject | None = None  #: More variables of the template.
    add_generation_prompt: StrictBool | None = None  #: End the prompt where an answer begins.
    separate_reasoning: StrictBool | None = None  #: False leaves thoughts within the content.
    continue_final_message: StrictBool | None = None  #: Go on with the last message instead.

    @property
    def begins_an_answer(self) -> bool:
        """Whether the prompt ends with the beginning of an answer."""
        if self.add_generation_prompt is None:
            return not self.continue_final_message

        return self.add_generation_prompt

    @property
    def offered_tools(self) -> tuple[Tool, ...]:
        """The tools the model is told of."""
        return () if self.tool_choice == "none" else self.tools

    @property
    def callable_tools(self) -> tuple[Tool, ...]:
        """The tools that an answer may call."""
        names = _chosen_names(self.tool_choice)
        if names is None:
            return self.offered_tools

        return tuple(tool for tool in self.tools if tool.function.name in names)

    @property
    def must_call_a_tool(self) -> bool:
        """Whether the answer has to be a call."""
        choice = self.tool_choice
        if isinstance(choice, AllowedTools):
            return choice.allowed_tools.mode == "required"

        return choice == "required" or isinstance(choice, NamedTool)

    @property
    def num_logprobs(self) -> int | None:
        """How many alternatives are told with each token; None is no log-probability at all."""
        return (self.top_logprobs or 0) if self.logprobs else None

    @property
    def max_new_tokens(self) -> int | None:
        """The completion's tokens at most, by either name."""
        return self.max_completion_tokens or self.max_tokens


def parse_chat_request(fields: Mapping[str, Any]) -> ChatCompletionRequest:
    """Validate a request's fields.

    Raises:
        BadRequestError: a field is invalid, unknown or not supported; `param` names it.
    """
    messages = fields.get("messages")
    if isinstance(messages, (list, tuple, Iterator)):
        fields = {**fields, "messages": [_as_fields(message) for message in messages]}

    request = parse_request(ChatCompletionRequest, fields, _NOT_SUPPORTED)
    if len({request.max_tokens, request.max_completion_tokens} - {None}) > 1:
        raise BadRequestError(
            "max_tokens and max_completion_tokens mean the same and differ",
            param="max_completion_tokens",
        )

    if request.top_logprobs and not request.logprobs:
        raise BadRequestError(
            '"logprobs" must be True to support "top_logprobs"', param="top_logprobs"
        )

    if request.continue_final_message:
        _check_continuation(request)

    _check_tool_choice(request)
    return request


def parse_event_request(fields: Mapping[str, Any]) -> ChatCompletionRequest:
    """Validate the fields of a chat that is told in events, which end with the usage unless
    `stream_options` says otherwise.

    Raises:
        BadRequestError: as `parse_chat_request`; or `stream` is false.
    """
    fields = with_extra_body(fields)
    if fields.get("stream") is None:
        fields["stream"] = True

    if fields.get("stream_options") is None:
        fields["stream_options"] = {"include_usage": True}

    if fields["stream"] is False:
        raise BadRequestError("stream: events are always one", param="stream")

    return parse_chat_request(fields)


def _chosen_names(choice: ToolChoice | None) -> tuple[str, ...] | None:
    """The functions that a choice names; None if it leaves the choice."""
    if isinstance(choice, NamedTool):
        return (choice.function.name,)

    if isinstance(choice, AllowedTools):
        return tuple(tool.function.name for tool in choice.allowed_tools.tools)

    return None


def _check_tool_choice(request: ChatCompletionRequest) -> None:
    if request.must_call_a_tool and not request.tools:
        raise BadRequestError("tool_choice: there are no tools to call", param="tool_choice")

    known = {tool.function.name for tool in request.tools}
    for name in _chosen_names(request.tool_choice) or ():
        if name not in known:
            raise BadRequestError(
                f"tool_choice: there is no tool {name!r} among the tools", param="tool_choice"
            )


def _check_continuation(request: ChatCompletionRequest) -> None:
    last = request.messages[-1]
    if last.role != "assistant" or not last.content or last.tool_calls:
        raise BadRequestError(
            "continue_final_message: the last message is no text of the assistant's",
            param="continue_final_message",
        )

    if request.add_generation_prompt:
        raise BadRequestError(
            "continue_final_message and add_generation_prompt exclude each other",
            param="continue_final_message",
        )


def _as_fields(message: object) -> object:
    """A message, which may be the model of an earlier answer, as the fields that say something."""
    fields = message.model_dump(exclude_none=True) if isinstance(message, BaseModel) else message
    if not isinstance(fields, Mapping):
        return fields

    return {
        name: value
        for name, value in fields.items()
        if value is not None or name in _NEEDED_OF_MESSAGES
        if name != "annotations" or not is_noop(value, ([], ()))
    }
