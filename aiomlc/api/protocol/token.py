"""A request for a stream of tokens: the fields we honour, and those we refuse by name."""

from __future__ import annotations

__all__ = ("TokenRequest", "parse_token_request")

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, StrictInt

from aiomlc.api.protocol.request import GenerationRequest, are_token_ids, parse_request
from aiomlc.api.protocol.response_format import ResponseFormat

# Fields of plain completions, with the values that ask for nothing we do not do.
_NOT_SUPPORTED: dict[str, tuple[object, ...]] = {
    "best_of": (1,),
    "debug_config": (),
    "echo": (False,),
    "stream": (True,),
    "stream_options": ({},),
    "suffix": (),
}


def _one_prompt(prompt: object) -> object:
    if not isinstance(prompt, str) and not are_token_ids(prompt):
        raise ValueError("is neither one text nor the token ids of one")

    return prompt


class TokenRequest(GenerationRequest):
    """A validated request."""

    prompt: Annotated[str | tuple[int, ...], BeforeValidator(_one_prompt)]
    n: Annotated[StrictInt, Field(ge=1, le=128)] | None = None  #: Choices; None is one.
    response_format: ResponseFormat | None = None  #: None is any text.
    logprobs: Annotated[StrictInt, Field(ge=0, le=20)] | None = None  #: Alternatives to tell.

    @property
    def num_choices(self) -> int:
        """Choices to generate."""
        return self.n or 1

    @property
    def num_logprobs(self) -> int | None:
        """How many alternatives are told with each token; None is no log-probability at all."""
        return self.logprobs


def parse_token_request(fields: Mapping[str, Any]) -> TokenRequest:
    """Validate a request's fields.

    Raises:
        BadRequestError: a field is invalid, unknown or not supported; `param` names it.
    """
    return parse_request(TokenRequest, fields, _NOT_SUPPORTED)
