"""The sampling parameters of `SyncMLCEngine`, with MLC LLM's field names."""

from __future__ import annotations

__all__ = ("GenerationConfig",)

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, GetPydanticSchema, StrictInt

from aiomlc.api.protocol.base import NONE_IS_EMPTY
from aiomlc.api.protocol.debug_config import DebugConfig, check_debug_config
from aiomlc.api.protocol.request import Bias, ChoiceCount, StopStrings, TokenId
from aiomlc.api.protocol.response_format import ResponseFormat, parse_response_format
from aiomlc.errors import BadRequestError
from aiomlc.sampling_params import SamplingParams
from aiomlc.validation.error_messages import describe_error

# `Doc` and `Number` are in the annotations of inherited fields, which the constructor has, too.
from aiomlc.validation.parameter import (
    Doc,  # noqa: F401  # pyright: ignore[reportUnusedImport]
    Flag,
    Integer,
    Number,  # noqa: F401  # pyright: ignore[reportUnusedImport]
)
from aiomlc.validation.records import names_similar_fields, validate_fields
from aiomlc.validation.suggestions import REQUEST_SYNONYMS

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

    from aiomlc.runtime.engine.logits_processors import LogitsProcessor
else:
    LogitsProcessor = Callable[..., object]  # The annotations of the type need NumPy.


def _validated_as(wire_type: object) -> GetPydanticSchema:
    return GetPydanticSchema(lambda _, handler: handler(wire_type))


_TokenIds = tuple[TokenId, ...]
_Functions = Annotated[tuple[LogitsProcessor, ...], NONE_IS_EMPTY]
_LogitBias = dict[Annotated[StrictInt, Field(ge=0)], Bias] | None


@names_similar_fields(REQUEST_SYNONYMS)
@dataclass(frozen=True, kw_only=True)
class GenerationConfig(SamplingParams):
    """The sampling parameters and the limits of a request; None selects the model's default.

    Raises:
        BadRequestError: If a field is invalid or not supported; `param` names it.
    """

    n: Annotated[int, _validated_as(ChoiceCount)] = 1  #: The number of choices, at most 128.
    max_tokens: Annotated[int | None, Integer(ge=-1)] = -1  #: -1 means no limit.
    logprobs: Annotated[bool, Flag()] = False
    #: Alternatives to report per token; requires `logprobs`.
    top_logprobs: Annotated[int, Integer(ge=0, le=20)] = 0
    logit_bias: Annotated[Mapping[int, float] | None, _validated_as(_LogitBias)] = None
    stop_strs: Annotated[Sequence[str] | str | None, _validated_as(StopStrings)] = None
    #: The tokens that end the output; None means the model's.
    stop_token_ids: Annotated[Sequence[int] | None, _validated_as(_TokenIds | None)] = None
    response_format: Mapping[str, Any] | None = None
    debug_config: Annotated[
        DebugConfig | Mapping[str, Any] | None, _validated_as(DebugConfig | None)
    ] = None
    #: Functions that change the logits before each token is sampled.
    logits_processors: Annotated[Sequence[LogitsProcessor] | None, _validated_as(_Functions)] = None

    def __post_init__(self) -> None:
        validate_fields(self, _describe)
        if self.max_tokens == 0:
            raise BadRequestError(
                '"max_tokens" should be -1 or positive, got 0', param="max_tokens"
            )

        if self.top_logprobs and not self.logprobs:
            raise BadRequestError(
                '"logprobs" must be True to support "top_logprobs"', param="logprobs"
            )

        if isinstance(self.debug_config, DebugConfig):
            self._apply_debug_config(self.debug_config)

        _ = self.format

    def _apply_debug_config(self, config: DebugConfig) -> None:
        check_debug_config(config, is_chat=False, stream=True, include_usage=True)
        if config.ignore_eos:
            object.__setattr__(self, "ignore_eos", True)

    @property
    def uses_model_stops(self) -> bool:
        """Whether the model's stop tokens end the output."""
        return not self.ignore_eos and self.stop_token_ids is None

    @property
    def stop(self) -> Sequence[str]:
        """The stop strings."""
        return self.stop_strs or ()

    @property
    def format(self) -> ResponseFormat | None:
        """The response format; None means any text.

        Raises:
            BadRequestError: If it is invalid.
        """
        return None if self.response_format is None else parse_response_format(self.response_format)

    @property
    def starts_text(self) -> bool:
        """Whether the output is a text of its own: True, as for MLC LLM."""
        return True

    @property
    def num_logprobs(self) -> int | None:
        """The number of alternatives per token; None disables log-probabilities."""
        return self.top_logprobs if self.logprobs else None

    @property
    def num_prompt_logprobs(self) -> int | None:
        """The number of alternatives per prompt token; None disables log-probabilities."""
        return self.prompt_logprobs

    @property
    def max_new_tokens(self) -> int | None:
        """The maximum number of completion tokens; None means the rest of the context window."""
        return None if self.max_tokens == -1 else self.max_tokens


def _describe(name: str, error: ErrorDetails) -> str:
    return f'"{name}" {describe_error(error)}'
