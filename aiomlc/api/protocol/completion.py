"""Plain completions: `model_dump()` of each is OpenAI's JSON."""

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

from pydantic import BeforeValidator, Field, StrictBool, StrictInt, StrictStr

from aiomlc.api.protocol.base import WireModel
from aiomlc.api.protocol.chat import PromptLogprobs
from aiomlc.api.protocol.request import GenerationRequest, are_token_ids, parse_request
from aiomlc.api.protocol.response_format import ResponseFormat
from aiomlc.api.protocol.usage import StreamedWithUsage
from aiomlc.errors import BadRequestError

# The fields that are refused, with the values that ask for nothing we do not do.
_NOT_SUPPORTED: dict[str, tuple[object, ...]] = {
    "debug_config": (),
}


def _as_prompts(prompt: object) -> tuple[object, ...]:
    """The prompts of a list; one text, or one list of token ids, is a list of one."""
    if isinstance(prompt, str) or are_token_ids(prompt):
        return (prompt,)

    prompts = tuple(prompt) if isinstance(prompt, (list, tuple)) else ()
    if not prompts or not all(isinstance(one, str) or are_token_ids(one) for one in prompts):
        raise ValueError("is not text, token ids or a list of either")

    return prompts


class CompletionRequest(GenerationRequest):
    """A validated request."""

    prompt: Annotated[tuple[str | tuple[int, ...], ...], BeforeValidator(_as_prompts)]
    echo: StrictBool | None = None  #: Begin each text with its prompt.
    n: Annotated[StrictInt, Field(ge=1, le=128)] | None = None  #: Choices; None is one.
    best_of: Annotated[StrictInt, Field(ge=1, le=128)] | None = None  #: Of so many, the best `n`.
    logprobs: Annotated[StrictInt, Field(ge=0, le=20)] | None = None  #: Alternatives to tell.
    suffix: StrictStr | None = None  #: What follows the completion.
    response_format: ResponseFormat | None = None  #: None is any text.

    @property
    def num_choices(self) -> int:
        """Choices to generate for each prompt."""
        return self.best_of or self.n or 1

    @property
    def is_selective(self) -> bool:
        """Whether more is generated than told."""
        return self.num_choices > (self.n or 1)

    @property
    def num_logprobs(self) -> int | None:
        """How many alternatives are told with each token; the best need log-probabilities."""
        return 0 if self.logprobs is None and self.is_selective else self.logprobs

    @property
    def num_prompt_logprobs(self) -> int | None:
        """How many alternatives are told with each token of the prompt; None: nothing is told."""
        echoed = self.logprobs if self.echo else None
        return max(
            (number for number in (self.prompt_logprobs, echoed) if number is not None),
            default=None,
        )


class CompletionLogprobs(WireModel):
    """Parallel lists with an entry for each token; their text may come with a later event."""

    text_offset: list[int]  #: Characters before the token.
    token_logprobs: list[float | None]  #: None for the first token of a prompt that is echoed.
    tokens: list[str]
    top_logprobs: list[dict[str, float] | None]  #: The chosen token among them; None as above.


class CompletionChoice(WireModel):
    """A text, or what it gained."""

    index: int  #: Of the prompt, times `n`, and of its choice.
    text: str
    logprobs: CompletionLogprobs | None = None  #: If they were asked for.
    finish_reason: Literal["stop", "length"] | None = None  #: None while it goes on.
    prompt_logprobs: PromptLogprobs = None  #: On its first event.


class Completion(StreamedWithUsage):
    """Whole texts, or one event of a stream; those share `id` and `created`."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int  #: Unix time in seconds.
    model: str
    choices: list[CompletionChoice]
    system_fingerprint: str | None = None


def parse_completion_request(fields: Mapping[str, Any]) -> CompletionRequest:
    """Validate a request's fields.

    Raises:
        BadRequestError: a field is invalid, unknown or not supported; `param` names it.
    """
    request = parse_request(CompletionRequest, fields, _NOT_SUPPORTED)
    if request.num_choices < (request.n or 1):
        raise BadRequestError(f"best_of is {request.best_of}, below n {request.n}", param="best_of")

    if request.is_selective and request.stream:
        raise BadRequestError("best_of: a stream cannot tell the best", param="best_of")

    if request.echo and request.logprobs is not None and request.suffix is not None:
        raise BadRequestError(
            "logprobs: not with echo and suffix, as the prompt is not the model's", param="logprobs"
        )

    return request
