"""The wire models of text completions; `model_dump()` gives OpenAI's JSON."""

from __future__ import annotations

__all__ = (
    "Completion",
    "CompletionChoice",
    "CompletionLogprobs",
    "CompletionRequest",
    "parse_completion_request",
)

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, StrictBool, StrictStr

from aiomlc.api.protocol.base import WireModel
from aiomlc.api.protocol.chat import PromptLogprobs
from aiomlc.api.protocol.ignored import IgnoredFields
from aiomlc.api.protocol.request import (
    GenerationRequest,
    NumChoices,
    NumLogprobs,
    are_token_ids,
    parse_request,
    with_extra_body,
)
from aiomlc.api.protocol.response_format import ResponseFormat
from aiomlc.api.protocol.usage import StreamedWithUsage
from aiomlc.errors import BadRequestError
from aiomlc.validation.json_values import safe_repr
from aiomlc.validation.parameter import Integer

# Unsupported fields, each with the values that are accepted because they have no effect.
_NOT_SUPPORTED: dict[str, tuple[object, ...]] = {}


def _to_prompts(prompt: object) -> tuple[object, ...]:
    """Return a list of prompts as a tuple; a single prompt becomes a tuple of one."""
    if isinstance(prompt, str) or are_token_ids(prompt):
        return (prompt,)

    prompts = tuple(prompt) if isinstance(prompt, (list, tuple)) else ()
    if not prompts or not all(isinstance(item, str) or are_token_ids(item) for item in prompts):
        raise ValueError(
            "must be a string, a list of token ids or a non-empty list of either, "
            f"got {safe_repr(prompt)}"
        )

    return prompts


class CompletionRequest(GenerationRequest):  # type: ignore[misc] # Frozen by `model_config`.
    """A validated request for text completions."""

    prompt: Annotated[tuple[str | tuple[int, ...], ...], BeforeValidator(_to_prompts)]
    echo: StrictBool | None = None  #: Whether each completion begins with its prompt.
    n: NumChoices = None  #: Choices per prompt.
    #: Choices to generate per prompt, of which the best `n` are returned; None means `n`.
    best_of: NumChoices = None
    #: 0 generates nothing: with `echo` and `logprobs`, it scores the prompt.
    max_tokens: Annotated[int | None, Integer(ge=0)] = None
    logprobs: NumLogprobs = None
    suffix: StrictStr | None = None  #: The text after the completion (fill-in-the-middle).
    response_format: ResponseFormat | None = None  #: None means any text.

    @property
    def num_choices(self) -> int:
        """The number of choices to generate for each prompt."""
        return self.best_of or self.n or 1

    @property
    def is_selective(self) -> bool:
        """Whether more choices are generated than returned."""
        return self.num_choices > (self.n or 1)

    @property
    def num_logprobs(self) -> int | None:
        """The number of alternatives per token; None disables log-probabilities.

        Selecting the best choices needs log-probabilities even if none are requested.
        """
        return 0 if self.logprobs is None and self.is_selective else self.logprobs

    @property
    def num_prompt_logprobs(self) -> int | None:
        """The number of alternatives per prompt token; None disables log-probabilities."""
        echoed = self.logprobs if self.echo else None
        return max(
            (number for number in (self.prompt_logprobs, echoed) if number is not None),
            default=None,
        )


class CompletionLogprobs(WireModel):
    """Parallel lists with one entry per token; the text of a token may follow in a later chunk."""

    text_offset: list[int]  #: Characters before the token.
    token_logprobs: list[float | None]  #: None for the first token of an echoed prompt.
    tokens: list[str]
    #: Log-probabilities by token text, including the sampled token; None as in `token_logprobs`.
    top_logprobs: list[dict[str, float] | None]


class CompletionChoice(WireModel):
    """One choice of one prompt, or in a stream its new text."""

    index: int  #: The index of the prompt times the choices per prompt, plus that of the choice.
    text: str
    logprobs: CompletionLogprobs | None = None  #: None unless requested.
    #: In a stream, None except in the last chunk of the choice.
    finish_reason: Literal["stop", "length"] | None = None
    prompt_logprobs: PromptLogprobs = None  #: In a stream, set in the choice's first chunk only.


class Completion(StreamedWithUsage):
    """A complete response, or one chunk of a stream.

    All chunks of a stream have the same `id` and `created`.
    """

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int  #: Unix time in seconds.
    model: str
    choices: list[CompletionChoice]
    system_fingerprint: str | None = None


def parse_completion_request(
    fields: Mapping[str, Any], ignored: IgnoredFields | None = None
) -> CompletionRequest:
    """Validate the fields of a request for text completions.

    Args:
        ignored: Where fields that are unknown or not supported are noted; None rejects them.

    Raises:
        BadRequestError: If a field is invalid, unknown or not supported; `param` names it.
    """
    request = parse_request(CompletionRequest, with_extra_body(fields), _NOT_SUPPORTED, ignored)
    if request.num_choices < (request.n or 1):
        raise BadRequestError(
            f"best_of: must be >= n ({request.n}), got {request.best_of}", param="best_of"
        )

    if request.is_selective and request.stream:
        raise BadRequestError("best_of: must not exceed n if stream is True", param="best_of")

    if request.echo and request.logprobs is not None and request.suffix is not None:
        raise BadRequestError(
            "logprobs: not supported together with echo and suffix", param="logprobs"
        )

    return request
