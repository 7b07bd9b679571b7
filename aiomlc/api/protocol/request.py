"""What every request for text has in common, and how its fields are taken."""

from __future__ import annotations

__all__ = (
    "GenerationRequest",
    "Int64",
    "StreamOptions",
    "are_token_ids",
    "is_noop",
    "parse_request",
    "with_extra_body",
)

from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, Field, Strict, StrictBool, StrictInt, StrictStr

from aiomlc.api.protocol.base import NONE_IS_EMPTY, WireModel, parse
from aiomlc.errors import BadRequestError

_Float = Annotated[float, Strict()]
_Seconds = Annotated[_Float, Field(gt=0)]
#: A number that the core takes.
Int64 = Annotated[StrictInt, Field(ge=-(2**63), lt=2**63)]
_TokenId = Annotated[int, Field(ge=0)]
_Bias = Annotated[_Float, Field(ge=-100, le=100)]
_StopString = Annotated[str, Strict(), Field(min_length=1)]
_Request = TypeVar("_Request", bound="GenerationRequest")


def _as_tuple(stop: object) -> object:
    return (stop,) if isinstance(stop, str) else stop or ()


class StreamOptions(WireModel):
    """What a stream carries besides its deltas."""

    include_usage: StrictBool | None = None  #: End with a chunk of token counts.
    include_obfuscation: StrictBool | None = None  #: Refused when true.


class GenerationRequest(WireModel):
    """The fields of chat and of plain completions. None is the model's own choice, or no limit."""

    model: StrictStr | None = None  #: Echoed in the answer.
    temperature: Annotated[_Float, Field(ge=0, le=2)] | None = None  #: 0 is greedy.
    top_p: Annotated[_Float, Field(ge=0, le=1)] | None = None  #: 0 is greedy, too.
    top_k: Annotated[Int64, Field(ge=0)] | None = None  #: Ours; 0 is off.
    min_p: Annotated[_Float, Field(ge=0, le=1)] | None = None  #: Ours; 0 is off.
    presence_penalty: Annotated[_Float, Field(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[_Float, Field(ge=-2, le=2)] | None = None
    repetition_penalty: Annotated[_Float, Field(gt=0)] | None = None  #: Ours; 1 is off.
    logit_bias: dict[_TokenId, _Bias] | None = None  #: By token id, which JSON writes as text.
    prompt_logprobs: Annotated[StrictInt, Field(ge=0, le=20)] | None = None  #: As vLLM names it.
    #: Python functions, so not of JSON: see `LogitsProcessor`.
    logits_processors: Annotated[tuple[Callable[..., object], ...], NONE_IS_EMPTY] = ()
    max_tokens: Annotated[Int64, Field(ge=1)] | None = None
    min_tokens: Annotated[Int64, Field(ge=0)] | None = None  #: Ours; nothing stops before.
    stop: Annotated[tuple[_StopString, ...], BeforeValidator(_as_tuple)] = ()
    stop_token_ids: Annotated[tuple[Int64, ...], NONE_IS_EMPTY] = ()
    ignore_eos: StrictBool | None = None  #: Go on where the model would end.
    priority: Int64 | None = None  #: Ours; the lower, the earlier. None is 0.
    timeout: _Seconds | None = None  #: Ours; to the end of the answer.
    first_token_timeout: _Seconds | None = None  #: Ours.
    inter_token_timeout: _Seconds | None = None  #: Ours; not while the reader is behind.
    seed: Int64 | None = None
    stream: StrictBool | None = None
    stream_options: StreamOptions | None = None
    request_id: Annotated[str, Strict(), Field(min_length=1)] | None = None
    # Labels for a service's own records, which an engine inside a program does not keep.
    user: StrictStr | None = None
    safety_identifier: StrictStr | None = None
    metadata: dict[str, StrictStr] | None = None

    @property
    def max_new_tokens(self) -> int | None:
        """The completion's tokens at most."""
        return self.max_tokens

    @property
    def num_prompt_logprobs(self) -> int | None:
        """How many alternatives are told with each token of the prompt; None: nothing is told."""
        return self.prompt_logprobs

    @property
    def include_usage(self) -> bool:
        """Whether the stream ends with a chunk of token counts."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)


def parse_request(
    request_type: type[_Request],
    fields: Mapping[str, Any],
    not_supported: Mapping[str, tuple[object, ...]],
) -> _Request:
    """Validate a request's fields; those of `extra_body` are fields like the others.

    `not_supported` has the fields that are refused, with the values that are harmless.

    Raises:
        BadRequestError: a field is invalid, unknown or not supported; `param` names it.
    """
    known = {}
    for name, value in with_extra_body(fields).items():
        harmless = not_supported.get(name)
        if harmless is not None and not is_noop(value, harmless):
            raise BadRequestError(f"{name} is not supported yet", param=name)

        if harmless is None or name in request_type.model_fields:
            known[name] = value

    request = parse(request_type, known)
    _check_stream_options(request)
    _check_min_tokens(request)
    return request


def is_noop(value: object, harmless: tuple[object, ...]) -> bool:
    """Whether a value asks for nothing: it is None, or one of those."""
    # Of their types, because others may compare as they like: numpy's arrays give no bool.
    return value is None or any(isinstance(value, type(one)) and value == one for one in harmless)


def are_token_ids(value: object) -> bool:
    """Whether a value is a list of numbers, at least one."""
    if not isinstance(value, (list, tuple)) or not value:
        return False

    return all(type(token_id) is int for token_id in value)


def with_extra_body(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields, with those of `extra_body` among them; what can be read only once is a list.

    Raises:
        BadRequestError: `extra_body` is not an object.
    """
    fields = dict(fields)
    extra = fields.pop("extra_body", None) or {}
    if not isinstance(extra, Mapping):
        raise BadRequestError("extra_body: is not an object", param="extra_body")

    return {
        name: list(value) if isinstance(value, Iterator) else value
        for name, value in {**fields, **extra}.items()
    }


def _check_min_tokens(request: GenerationRequest) -> None:
    if request.max_new_tokens is not None and (request.min_tokens or 0) > request.max_new_tokens:
        raise BadRequestError(
            f"min_tokens is {request.min_tokens}, above max_tokens {request.max_new_tokens}",
            param="min_tokens",
        )


def _check_stream_options(request: GenerationRequest) -> None:
    options = request.stream_options
    if options is not None and not request.stream:
        raise BadRequestError(
            "stream must be set to True when stream_options is present", param="stream_options"
        )

    if options is not None and options.include_obfuscation:
        raise BadRequestError(
            "stream_options.include_obfuscation is not supported yet",
            param="stream_options.include_obfuscation",
        )
