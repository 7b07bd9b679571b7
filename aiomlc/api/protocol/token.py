"""The wire model of a request for a token stream."""

from __future__ import annotations

__all__ = ("TokenRequest", "parse_token_request")

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator

from aiomlc.api.protocol.request import (
    GenerationRequest,
    NumChoices,
    NumLogprobs,
    are_token_ids,
    parse_request,
    with_extra_body,
)
from aiomlc.api.protocol.response_format import ResponseFormat
from aiomlc.validation.json_values import safe_repr

# Unsupported fields, each with the values that are accepted because they have no effect.
_NOT_SUPPORTED: dict[str, tuple[object, ...]] = {
    "best_of": (1,),
    "echo": (False,),
    "stream": (True,),
    "stream_options": ({},),
    "suffix": (),
}


def _check_prompt(prompt: object) -> object:
    if not isinstance(prompt, str) and not are_token_ids(prompt):
        raise ValueError(
            f"must be a string or a non-empty list of token ids, got {safe_repr(prompt)}"
        )

    return prompt


class TokenRequest(GenerationRequest):  # type: ignore[misc] # Frozen by `model_config`.
    """A validated request for a token stream."""

    prompt: Annotated[str | tuple[int, ...], BeforeValidator(_check_prompt)]
    n: NumChoices = None
    response_format: ResponseFormat | None = None  #: None means any text.
    logprobs: NumLogprobs = None

    @property
    def num_choices(self) -> int:
        """The number of choices to generate."""
        return self.n or 1

    @property
    def num_logprobs(self) -> int | None:
        """The number of alternatives per token; None disables log-probabilities."""
        return self.logprobs


def parse_token_request(fields: Mapping[str, Any]) -> TokenRequest:
    """Validate the fields of a request for a token stream.

    Raises:
        BadRequestError: If a field is invalid, unknown or not supported; `param` names it.
    """
    return parse_request(TokenRequest, with_extra_body(fields), _NOT_SUPPORTED)
