"""A chat completion request: the fields we honour, and those we refuse by name."""

from __future__ import annotations

__all__ = ("ChatCompletionRequest", "StreamOptions", "parse_chat_request")

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field, Strict, StrictBool, StrictInt, StrictStr

from aiomlc.api.protocol.messages import Message
from aiomlc.api.protocol.wire import WireModel, parse
from aiomlc.errors import BadRequestError

# Fields of OpenAI's, and of servers like it, with the values that ask for nothing.
_NOT_SUPPORTED: dict[str, tuple[object, ...]] = {
    "add_generation_prompt": (True,),
    "audio": (),
    "best_of": (1,),
    "cache_salt": (),
    "chat_template_kwargs": ({},),
    "continue_final_message": (False,),
    "debug_config": (),
    "echo": (False,),
    "extra_body": ({},),
    "frequency_penalty": (0,),
    "function_call": (),
    "functions": ([], ()),
    "ignore_eos": (False,),
    "include_stop_str_in_output": (False,),
    "logit_bias": ({},),
    "logprobs": (False,),
    "metadata": ({},),
    "min_tokens": (0,),
    "modalities": (["text"], ("text",)),
    "moderation": (),
    "parallel_tool_calls": (),
    "prediction": (),
    "presence_penalty": (0,),
    "priority": (0,),
    "prompt_cache_key": (),
    "prompt_cache_retention": (),
    "reasoning_effort": (),
    "repetition_penalty": (1,),
    "response_format": ({"type": "text"},),
    "return_token_ids": (False,),
    "safety_identifier": (),
    "service_tier": ("auto", "default"),
    "stop_token_ids": ([], ()),
    "store": (False,),
    "suffix": (),
    "tool_choice": ("none", "auto"),
    "tools": ([], ()),
    "top_logprobs": (0,),
    "user": (),
    "verbosity": (),
    "web_search_options": (),
}

_Float = Annotated[float, Strict()]
_StopString = Annotated[str, Strict(), Field(min_length=1)]


def _as_tuple(stop: object) -> object:
    return (stop,) if isinstance(stop, str) else stop or ()


class StreamOptions(WireModel):
    """What a stream carries besides its deltas."""

    include_usage: StrictBool | None = None  #: End with a chunk of token counts.
    include_obfuscation: StrictBool | None = None  #: Refused when true.


class ChatCompletionRequest(WireModel):
    """A validated request. None is the model's own choice, or no limit."""

    messages: Annotated[tuple[Message, ...], Field(min_length=1)]
    model: StrictStr | None = None  #: Echoed in the answer.
    temperature: Annotated[_Float, Field(ge=0, le=2)] | None = None  #: 0 is greedy.
    top_p: Annotated[_Float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[StrictInt, Field(ge=0)] | None = None  #: Ours; 0 is off.
    min_p: Annotated[_Float, Field(ge=0, le=1)] | None = None  #: Ours; 0 is off.
    n: Annotated[StrictInt, Field(ge=1, le=128)] | None = None  #: Choices; None is one.
    max_tokens: Annotated[StrictInt, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[StrictInt, Field(ge=1)] | None = None
    stop: Annotated[tuple[_StopString, ...], BeforeValidator(_as_tuple)] = ()
    seed: Annotated[StrictInt, Field(ge=-(2**63), lt=2**63)] | None = None
    stream: StrictBool | None = None
    stream_options: StreamOptions | None = None
    request_id: Annotated[str, Strict(), Field(min_length=1)] | None = None

    @property
    def token_limit(self) -> int | None:
        """The completion's tokens at most, by either name."""
        return self.max_completion_tokens or self.max_tokens

    @property
    def include_usage(self) -> bool:
        """Whether the stream ends with a chunk of token counts."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)


def parse_chat_request(fields: Mapping[str, Any]) -> ChatCompletionRequest:
    """Validate a request's fields.

    Raises:
        BadRequestError: a field is invalid, unknown or not supported; `param` names it.
    """
    known = {}
    for name, value in fields.items():
        if name not in _NOT_SUPPORTED:
            known[name] = value
        elif value is not None and value not in _NOT_SUPPORTED[name]:
            raise BadRequestError(f"{name} is not supported yet", param=name)

    messages = known.get("messages")
    if isinstance(messages, (list, tuple)):
        known["messages"] = [_as_fields(message) for message in messages]

    request = parse(ChatCompletionRequest, known)
    _check_together(request)
    return request


def _check_together(request: ChatCompletionRequest) -> None:
    if request.stream_options is not None and not request.stream:
        raise BadRequestError(
            "stream must be set to True when stream_options is present", param="stream_options"
        )

    if request.stream_options is not None and request.stream_options.include_obfuscation:
        raise BadRequestError(
            "stream_options.include_obfuscation is not supported yet",
            param="stream_options.include_obfuscation",
        )

    if len({request.max_tokens, request.max_completion_tokens} - {None}) > 1:
        raise BadRequestError(
            "max_tokens and max_completion_tokens mean the same and differ",
            param="max_completion_tokens",
        )


def _as_fields(message: object) -> object:
    """A message that is a model, like the one of an earlier answer, as its fields."""
    if isinstance(message, BaseModel):
        return message.model_dump(exclude_none=True)

    return message
