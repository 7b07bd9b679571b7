"""The fields that all requests for generated text share, and their validation."""

from __future__ import annotations

__all__ = (
    "MAX_NAME",
    "Bias",
    "ChoiceCount",
    "GenerationRequest",
    "LogitBias",
    "Name",
    "NumChoices",
    "NumLogprobs",
    "StopStrings",
    "StreamOptions",
    "TokenId",
    "are_token_ids",
    "is_noop",
    "parse_request",
    "reject_field",
    "with_extra_body",
)

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Annotated, Any, TypeVar

from pydantic import (
    BeforeValidator,
    Field,
    Strict,
    StrictBool,
    StrictInt,
    StrictStr,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from aiomlc.api.protocol.base import FIRST_ERROR, NONE_IS_EMPTY, WireModel, parse, plain_fields
from aiomlc.api.protocol.debug_config import DebugConfig, check_debug_config
from aiomlc.api.protocol.ignored import IgnoredFields, IgnoringRequest
from aiomlc.api.protocol.limits import check_sizes
from aiomlc.errors import BadRequestError, UnsupportedFieldError
from aiomlc.sampling_params import SamplingParams
from aiomlc.validation.parameter import Integer, Number, to_int

_BATCH = 256
_Request = TypeVar("_Request", bound="GenerationRequest")


def _to_tuple(stop: object) -> object:
    if stop is None:
        return ()

    return (stop,) if isinstance(stop, str) else stop


def _validate_in_batches(values: object, validate: ValidatorFunctionWrapHandler) -> Any:  # noqa: ANN401
    """Validate a large dict in parts, so that a wrong one does not have thousands of errors."""
    if type(values) is not dict or len(values) <= _BATCH:
        return validate(values)

    items = iter(values.items())
    valid: dict[Any, Any] = {}
    while batch := dict(islice(items, _BATCH)):
        valid |= validate(batch)

    return valid


#: A token id that fits the native core. It need not be in the vocabulary.
TokenId = Annotated[int, Integer(ge=0, le=2**31 - 1)]
ChoiceCount = Annotated[StrictInt, BeforeValidator(to_int), Field(ge=1, le=128)]
#: The number of choices; None means 1.
NumChoices = ChoiceCount | None
#: Alternatives to report per token; None means no log-probabilities.
NumLogprobs = Annotated[int | None, Integer(ge=0, le=20)]
MAX_NAME = 4096  #: Characters of a name that answers repeat.
Name = Annotated[StrictStr, Field(max_length=MAX_NAME)]
Bias = Annotated[float, Number(ge=-100, le=100)]
#: Biases by token id; JSON objects have strings as keys.
LogitBias = Annotated[dict[Annotated[int, Field(ge=0)], Bias], WrapValidator(_validate_in_batches)]
StopStrings = Annotated[
    tuple[Annotated[str, Strict(), Field(min_length=1)], ...],
    FIRST_ERROR,
    BeforeValidator(_to_tuple),
]


class StreamOptions(WireModel):
    """The options of a stream."""

    include_usage: StrictBool | None = None  #: Whether the stream ends with a usage chunk.
    #: Whether, with `include_usage`, every chunk has the usage so far, as in vLLM.
    continuous_usage_stats: StrictBool | None = None
    include_obfuscation: StrictBool | None = None  #: Rejected if True.


class GenerationRequest(IgnoringRequest, SamplingParams):  # type: ignore[misc] # Frozen by `model_config`.
    """The fields of chat completions, text completions and token streams."""

    model: Name | None = None  #: Echoed in the response.
    logit_bias: LogitBias | None = None
    #: Python functions, which JSON cannot carry: see `LogitsProcessor`.
    logits_processors: Annotated[tuple[Callable[..., object], ...], FIRST_ERROR, NONE_IS_EMPTY] = ()
    stop: StopStrings = ()
    stop_token_ids: Annotated[tuple[TokenId, ...], FIRST_ERROR, NONE_IS_EMPTY] = ()
    stream: StrictBool | None = None
    stream_options: StreamOptions | None = None
    debug_config: DebugConfig | None = None
    #: Whether text gets the tokenizer's special tokens; None means yes, unless a chat template or
    #: the format of the model's directory decides.
    add_special_tokens: StrictBool | None = None
    #: Whether the names of special tokens in texts of the request are plain text, as in
    #: transformers; those that a chat template writes are special tokens all the same.
    split_special_tokens: StrictBool | None = None
    request_id: Annotated[str, Strict(), Field(min_length=1, max_length=MAX_NAME)] | None = None
    # Labels for the logs of a hosted service, which an in-process engine does not keep.
    user: StrictStr | None = None
    safety_identifier: StrictStr | None = None
    metadata: dict[str, StrictStr] | None = None

    @property
    def num_logprobs(self) -> int | None:
        """The number of alternatives per token; None disables log-probabilities."""
        return None

    @property
    def num_prompt_logprobs(self) -> int | None:
        """The number of alternatives per prompt token; None disables log-probabilities."""
        return self.prompt_logprobs

    @property
    def is_chat(self) -> bool:
        """Whether this is a request for a chat completion."""
        return False

    @property
    def uses_model_stops(self) -> bool:
        """Whether the model's stop tokens end the output."""
        return not self.ignore_eos

    @property
    def starts_text(self) -> bool:
        """Whether the output is a text of its own and does not continue the prompt's."""
        return False

    @property
    def include_usage(self) -> bool:
        """Whether the stream ends with a usage chunk."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    @property
    def reports_usage(self) -> bool:
        """Whether every chunk of the stream has the usage so far."""
        return (
            self.include_usage
            and self.stream_options is not None
            and bool(self.stream_options.continuous_usage_stats)
        )


# What took the place of fields that OpenAI has deprecated.
_SUCCESSORS = {"functions": "tools", "function_call": "tool_choice"}


def parse_request(
    request_type: type[_Request],
    fields: Mapping[str, Any],
    not_supported: Mapping[str, tuple[object, ...]],
    ignored: IgnoredFields | None = None,
) -> _Request:
    """Validate the fields of a request.

    Args:
        fields: The fields by name, as `with_extra_body` returns them.
        not_supported: The known fields that are rejected, each with the values that are accepted
            because they have no effect.
        ignored: Where unknown and rejected fields are noted; None means that they are errors.

    Raises:
        BadRequestError: If a field is invalid, unknown or not supported; `param` names it.
    """
    known = {}
    for name, value in fields.items():
        accepted = not_supported.get(name)
        if accepted is not None and not is_noop(value, accepted):
            hint = f"; pass {_SUCCESSORS[name]}" if name in _SUCCESSORS else ""
            reject_field(name, f"{name} is not supported yet{hint}", ignored)
        elif accepted is None or name in request_type.model_fields:
            known[name] = value

    check_sizes(known)
    request = parse(request_type, known, ignored).ignoring(ignored)
    _check_stream_options(request)
    _check_min_tokens(request)
    return _with_debug_config(request)


def reject_field(path: str, message: str, ignored: IgnoredFields | None) -> None:
    """Raise an error for an unsupported field, or note that it is ignored.

    Raises:
        UnsupportedFieldError: If `ignored` is None.
    """
    if ignored is None:
        raise UnsupportedFieldError(message, param=path)

    ignored.add(path)


def is_noop(value: object, accepted: tuple[object, ...]) -> bool:
    """Return whether a value is None or one of `accepted`, and so has no effect."""
    # Compared within one type only, as other types may define == freely (NumPy arrays do).
    return value is None or any(
        isinstance(value, type(noop)) and value == noop for noop in accepted
    )


def are_token_ids(value: object) -> bool:
    """Return whether a value is a non-empty list of integers."""
    if not isinstance(value, (list, tuple)) or not value:
        return False

    return all(type(token_id) is int for token_id in value)


def with_extra_body(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Copy a caller's fields, merged with those of `extra_body`.

    Raises:
        BadRequestError: If `extra_body` is not an object, or a value is invalid.
    """
    plain = plain_fields(fields)
    extra = plain.pop("extra_body", None)
    if extra is None:
        return plain

    if not isinstance(extra, dict):
        raise BadRequestError(
            f"extra_body: must be an object, got {type(extra).__name__}", param="extra_body"
        )

    return {**plain, **extra}


def _with_debug_config(request: _Request) -> _Request:
    """Return the request with the options of its `debug_config` that have a field."""
    config = request.debug_config
    if config is None:
        return request

    check_debug_config(
        config,
        is_chat=request.is_chat,
        stream=bool(request.stream),
        include_usage=request.include_usage,
    )
    return request.model_copy(update={"ignore_eos": True}) if config.ignore_eos else request


def _check_min_tokens(request: GenerationRequest) -> None:
    if request.max_new_tokens is not None and (request.min_tokens or 0) > request.max_new_tokens:
        raise BadRequestError(
            f"min_tokens: must be <= max_tokens ({request.max_new_tokens}), "
            f"got {request.min_tokens}",
            param="min_tokens",
        )


def _check_stream_options(request: GenerationRequest) -> None:
    options = request.stream_options
    if options is not None and not request.stream:
        raise BadRequestError(
            "stream must be set to True when stream_options is present", param="stream_options"
        )

    if options is not None and options.include_obfuscation:
        path = "stream_options.include_obfuscation"
        reject_field(path, f"{path} is not supported yet", request.ignored_fields)
