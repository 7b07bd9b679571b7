"""The optional fields of requests as keyword arguments."""

from __future__ import annotations

__all__ = ("ChatOptions", "CompletionOptions", "GenerationOptions", "ParseOptions", "TokenOptions")

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from aiomlc.api.protocol.chat_request import ReasoningEffort
from aiomlc.api.protocol.tools import ToolChoice
from aiomlc.runtime.engine.logits_processors import LogitsProcessor
from aiomlc.sampling_params import SamplingKwargs


class GenerationOptions(SamplingKwargs, total=False):
    """The optional fields of chats, text completions and token streams.

    Any other field of OpenAI's API is rejected by name.
    """

    model: str | None
    logit_bias: Mapping[str, float] | Mapping[int, float] | None
    logits_processors: Sequence[LogitsProcessor] | None  #: Not JSON.
    stop: str | Sequence[str] | None
    stop_token_ids: Sequence[int] | None
    request_id: str | None
    user: str | None
    safety_identifier: str | None
    metadata: Mapping[str, str] | None
    extra_body: Mapping[str, Any] | None


class ParseOptions(GenerationOptions, total=False):
    """The optional fields of a chat whose response is parsed to a type."""

    stream_options: Mapping[str, Any] | None
    n: int | None
    max_completion_tokens: int | None
    logprobs: bool | None
    top_logprobs: int | None
    reasoning_effort: ReasoningEffort | None
    separate_reasoning: bool | None
    chat_template_kwargs: Mapping[str, Any] | None
    add_generation_prompt: bool | None
    continue_final_message: bool | None
    tools: Iterable[Mapping[str, Any]] | None
    tool_choice: ToolChoice | Mapping[str, Any] | None
    parallel_tool_calls: bool | None


class ChatOptions(ParseOptions, total=False):
    """The optional fields of a chat."""

    response_format: Mapping[str, Any] | None


class TokenOptions(GenerationOptions, total=False):
    """The optional fields of a token stream."""

    n: int | None
    logprobs: int | None
    response_format: Mapping[str, Any] | None


class CompletionOptions(TokenOptions, total=False):
    """The optional fields of a text completion."""

    stream_options: Mapping[str, Any] | None
    echo: bool | None
    best_of: int | None
    suffix: str | None
