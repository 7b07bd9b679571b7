"""The optional fields of requests, as keyword arguments."""

from __future__ import annotations

__all__ = ("ChatOptions", "CompletionOptions", "GenerationOptions", "ParseOptions", "TokenOptions")

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypedDict

from aiomlc.api.protocol.chat_request import ReasoningEffort
from aiomlc.api.protocol.tools import ToolChoice
from aiomlc.runtime.engine.logits_processors import LogitsProcessor


class GenerationOptions(TypedDict, total=False):
    """What chat, plain completions and streams of tokens share.

    Every other field of OpenAI's is refused by name.
    """

    model: str | None
    temperature: float | None
    top_p: float | None
    top_k: int | None
    min_p: float | None
    presence_penalty: float | None
    frequency_penalty: float | None
    repetition_penalty: float | None
    logit_bias: Mapping[str, float] | Mapping[int, float] | None
    prompt_logprobs: int | None
    logits_processors: Sequence[LogitsProcessor] | None  #: Not JSON.
    max_tokens: int | None
    min_tokens: int | None
    stop: str | Sequence[str] | None
    stop_token_ids: Sequence[int] | None
    ignore_eos: bool | None
    priority: int | None
    timeout: float | None
    first_token_timeout: float | None
    inter_token_timeout: float | None
    seed: int | None
    request_id: str | None
    user: str | None
    safety_identifier: str | None
    metadata: Mapping[str, str] | None
    extra_body: Mapping[str, Any] | None


class ParseOptions(GenerationOptions, total=False):
    """The optional fields of a chat whose answer has a type."""

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
    """The optional fields of a stream of tokens."""

    n: int | None
    logprobs: int | None
    response_format: Mapping[str, Any] | None


class CompletionOptions(TokenOptions, total=False):
    """The optional fields of a plain completion."""

    stream_options: Mapping[str, Any] | None
    echo: bool | None
    best_of: int | None
    suffix: str | None
