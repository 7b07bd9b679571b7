"""The wire model of a request for chat completions."""

from __future__ import annotations

__all__ = (
    "ChatCompletionRequest",
    "ReasoningEffort",
    "parse_chat_request",
    "parse_event_request",
)

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, StrictBool

from aiomlc.api.protocol.base import FIRST_ERROR, NONE_IS_EMPTY, JsonObject
from aiomlc.api.protocol.ignored import IgnoredFields
from aiomlc.api.protocol.messages import (
    AssistantMessage,
    Message,
    ToolMessage,
    audios_of,
    images_of,
)
from aiomlc.api.protocol.request import (
    GenerationRequest,
    NumChoices,
    NumLogprobs,
    is_noop,
    parse_request,
    with_extra_body,
)
from aiomlc.api.protocol.response_format import ResponseFormat
from aiomlc.api.protocol.tools import AllowedTools, NamedTool, Tool, ToolChoice
from aiomlc.errors import BadRequestError
from aiomlc.runtime.audio.reference import AudioReference
from aiomlc.runtime.images.reference import ImageReference
from aiomlc.validation.json_values import safe_repr
from aiomlc.validation.parameter import Integer

ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]

# Unsupported fields of OpenAI and of compatible servers, each with the values that are accepted
# because they have no effect.
_NOT_SUPPORTED: dict[str, tuple[object, ...]] = {
    "audio": (),
    "best_of": (1,),
    "cache_salt": (),
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
# In place of the messages of a special request, of which MLC LLM's have no content.
_NO_CHAT = [{"role": "user", "content": ""}]
# Kept even if they are None, so that validation reports them.
_REQUIRED_IN_MESSAGES = frozenset({"role", "content"})


class ChatCompletionRequest(GenerationRequest):  # type: ignore[misc] # Frozen by `model_config`.
    """A validated request for chat completions."""

    messages: Annotated[tuple[Message, ...], FIRST_ERROR, Field(min_length=1)]
    n: NumChoices = None
    tools: Annotated[tuple[Tool, ...], FIRST_ERROR, NONE_IS_EMPTY] = ()
    tool_choice: ToolChoice | None = None  #: None means "auto".
    parallel_tool_calls: StrictBool | None = None  #: False allows at most one call.
    response_format: ResponseFormat | None = None  #: None means any text.
    #: The newer name of `max_tokens`.
    max_completion_tokens: Annotated[int | None, Integer(ge=1)] = None
    logprobs: StrictBool | None = None
    top_logprobs: NumLogprobs = None
    reasoning_effort: ReasoningEffort | None = None  #: Passed to the chat template.
    chat_template_kwargs: JsonObject | None = None  #: Further variables for the template.
    #: Whether the prompt ends with the header of an assistant message; None means yes, unless
    #: `continue_final_message` is set.
    add_generation_prompt: StrictBool | None = None
    separate_reasoning: StrictBool | None = None  #: False leaves the reasoning in the content.
    #: Whether the response continues the last message.
    continue_final_message: StrictBool | None = None

    @property
    def is_chat(self) -> bool:
        """Whether this is a request for a chat completion."""
        return True

    @property
    def adds_generation_prompt(self) -> bool:
        """Whether the prompt ends with the header of an assistant message."""
        if self.add_generation_prompt is None:
            return not self.continue_final_message

        return self.add_generation_prompt

    @property
    def images(self) -> list[tuple[str, ImageReference]]:
        """The images of all messages in their order, each with the path of its part."""
        return images_of(self.messages)

    @property
    def audios(self) -> list[tuple[str, AudioReference]]:
        """The audio of all messages in its order, each with the path of its part."""
        return audios_of(self.messages)

    @property
    def offered_tools(self) -> tuple[Tool, ...]:
        """The tools that the prompt lists."""
        return () if self.tool_choice == "none" else self.tools

    @property
    def callable_tools(self) -> tuple[Tool, ...]:
        """The tools that the response may call."""
        names = _chosen_names(self.tool_choice)
        if names is None:
            return self.offered_tools

        return tuple(tool for tool in self.tools if tool.function.name in names)

    @property
    def requires_tool_call(self) -> bool:
        """Whether the response must be a tool call."""
        choice = self.tool_choice
        if isinstance(choice, AllowedTools):
            return choice.allowed_tools.mode == "required"

        return choice == "required" or isinstance(choice, NamedTool)

    @property
    def starts_text(self) -> bool:
        """Whether the output is a text of its own and does not continue the last message."""
        return not self.continue_final_message

    @property
    def num_logprobs(self) -> int | None:
        """The number of alternatives per token; None disables log-probabilities."""
        return (self.top_logprobs or 0) if self.logprobs else None

    @property
    def max_new_tokens(self) -> int | None:
        """The maximum number of completion tokens, by either name; None means no limit."""
        return self.max_completion_tokens or self.max_tokens


def parse_chat_request(
    fields: Mapping[str, Any], ignored: IgnoredFields | None = None
) -> ChatCompletionRequest:
    """Validate the fields of a request for chat completions.

    Args:
        ignored: Where fields that are unknown or not supported are noted; None rejects them.

    Raises:
        BadRequestError: If a field is invalid, unknown or not supported; `param` names it.
    """
    return _parse_plain(with_extra_body(fields), ignored)


def _parse_plain(
    fields: dict[str, Any], ignored: IgnoredFields | None = None
) -> ChatCompletionRequest:
    if _is_special(fields.get("debug_config")):
        fields["messages"] = _NO_CHAT

    messages = fields.get("messages")
    if isinstance(messages, list):
        fields["messages"] = [_as_fields(message) for message in messages]

    request = parse_request(ChatCompletionRequest, fields, _NOT_SUPPORTED, ignored)
    if len({request.max_tokens, request.max_completion_tokens} - {None}) > 1:
        raise BadRequestError(
            "max_completion_tokens: must equal max_tokens if both are given, got "
            f"{request.max_completion_tokens} and {request.max_tokens}",
            param="max_completion_tokens",
        )

    if request.top_logprobs and not request.logprobs:
        raise BadRequestError(
            '"logprobs" must be True to support "top_logprobs"', param="top_logprobs"
        )

    if request.continue_final_message:
        _check_continuation(request)

    _check_tool_names(request)
    _check_tool_choice(request)
    _check_tool_results(request)
    return request


def _is_special(debug_config: object) -> bool:
    return isinstance(debug_config, dict) and debug_config.get("special_request") is not None


def parse_event_request(fields: Mapping[str, Any]) -> ChatCompletionRequest:
    """Validate the fields of a chat that is streamed as events.

    The events end with the usage unless `stream_options` disables it.

    Raises:
        BadRequestError: As for `parse_chat_request`, or if `stream` is False.
    """
    fields = with_extra_body(fields)
    if fields.get("stream") is None:
        fields["stream"] = True

    if fields.get("stream_options") is None:
        fields["stream_options"] = {"include_usage": True}

    if fields["stream"] is False:
        raise BadRequestError("stream: must be True for a stream of events", param="stream")

    return _parse_plain(fields)


def _chosen_names(choice: ToolChoice | None) -> tuple[str, ...] | None:
    """Return the functions that a choice names; None if the model chooses."""
    if isinstance(choice, NamedTool):
        return (choice.function.name,)

    if isinstance(choice, AllowedTools):
        return tuple(tool.function.name for tool in choice.allowed_tools.tools)

    return None


def _check_tool_names(request: ChatCompletionRequest) -> None:
    names: set[str] = set()
    for index, tool in enumerate(request.tools):
        name = tool.function.name
        if name in names:
            param = f"tools[{index}].function.name"
            raise BadRequestError(f"{param}: {name!r} is already the name of a tool", param=param)

        names.add(name)


def _check_tool_choice(request: ChatCompletionRequest) -> None:
    if request.requires_tool_call and not request.tools:
        raise BadRequestError(
            "tool_choice: requires a tool call, but tools is empty", param="tool_choice"
        )

    known = {tool.function.name for tool in request.tools}
    for name in _chosen_names(request.tool_choice) or ():
        if name not in known:
            raise BadRequestError(
                f"tool_choice: names {name!r}, which is not in tools", param="tool_choice"
            )


def _check_tool_results(request: ChatCompletionRequest) -> None:
    """Require that each tool message answers a call, if there are any before it.

    MLC LLM's conversations have none: its assistant messages have their calls in the content.
    """
    calls: set[str] = set()
    for index, message in enumerate(request.messages):
        if isinstance(message, AssistantMessage):
            calls.update(call.id for call in message.tool_calls or ())
        elif isinstance(message, ToolMessage) and calls and message.tool_call_id not in calls:
            param = f"messages[{index}].tool_call_id"
            raise BadRequestError(
                f"{param}: must be the id of a tool call in an earlier message, got "
                f"{safe_repr(message.tool_call_id)}",
                param=param,
            )


def _check_continuation(request: ChatCompletionRequest) -> None:
    last = request.messages[-1]
    if last.role != "assistant" or not last.content or last.tool_calls:
        raise BadRequestError(
            "continue_final_message: the last message must be an assistant message with text",
            param="continue_final_message",
        )

    if request.add_generation_prompt:
        raise BadRequestError(
            "continue_final_message: not supported together with add_generation_prompt",
            param="continue_final_message",
        )


def _as_fields(message: object) -> object:
    """Return the fields of a message, which may be a model from an earlier response.

    Fields without effect are left out.
    """
    fields = message.model_dump(exclude_none=True) if isinstance(message, BaseModel) else message
    if not isinstance(fields, Mapping):
        return fields

    return {
        name: value
        for name, value in fields.items()
        if value is not None or name in _REQUIRED_IN_MESSAGES
        if name != "annotations" or not is_noop(value, ([], ()))
    }
