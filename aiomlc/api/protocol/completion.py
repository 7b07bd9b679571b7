"""Plain completions: `model_dump()` of each is OpenAI's JSON."""

from __future__ import annotations

__all__ = ("Completion", "CompletionChoice", "CompletionRequest", "parse_completion_request")

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, StrictBool

from aiomlc.api.protocol.request import GenerationRequest, parse_request
from aiomlc.api.protocol.usage import StreamedWithUsage
from aiomlc.api.protocol.wire import WireModel

# The fields that are refused, with the values that ask for nothing we do not do.
_NOT_SUPPORTED: dict[str, tuple[object, ...]] = {
    "best_of": (1,),
    "debug_config": (),
    "logprobs": (),
    "n": (1,),
    "response_format": ({"type": "text"},),
    "suffix": (),
}


def _as_prompts(prompt: object) -> tuple[object, ...]:
    """The prompts of a list; one text, or one list of token ids, is a list of one."""
    if isinstance(prompt, str) or _are_ids(prompt):
        return (prompt,)

    prompts = tuple(prompt) if isinstance(prompt, (list, tuple)) else ()
    if not prompts or not all(isinstance(one, str) or _are_ids(one) for one in prompts):
        raise ValueError("is not text, token ids or a list of either")

    return prompts


def _are_ids(prompt: object) -> bool:
    if not isinstance(prompt, (list, tuple)) or not prompt:
        return False

    return all(type(token_id) is int for token_id in prompt)


class CompletionRequest(GenerationRequest):
    """A validated request."""

    prompt: Annotated[tuple[str | tuple[int, ...], ...], BeforeValidator(_as_prompts)]
    echo: StrictBool | None = None  #: Begin each text with its prompt.

    @property
    def logprobs_wanted(self) -> int | None:
        """They are not told yet."""
        return None


class CompletionChoice(WireModel):
    """The text of one prompt, or what it gained."""

    index: int  #: Of the prompt.
    text: str
    logprobs: None = None
    finish_reason: Literal["stop", "length"] | None = None  #: None while it goes on.


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
    return parse_request(CompletionRequest, fields, _NOT_SUPPORTED)
