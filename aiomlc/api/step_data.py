"""What goes into `SyncMLCEngine` and what comes out, under upstream's names."""

from __future__ import annotations

__all__ = (
    "Data",
    "GenerationConfig",
    "Prompt",
    "Request",
    "RequestStreamOutput",
    "SingleRequestStreamOutput",
    "TextData",
    "TokenData",
    "one_config_each",
    "read_inputs",
    "read_prompts",
)

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from aiomlc.api.metrics import usage_extra
from aiomlc.api.protocol.response_format import ResponseFormat, parse_response_format
from aiomlc.errors import BadRequestError
from aiomlc.runtime.core_protocol import Record
from aiomlc.runtime.foreign_value import NOT_TEXT, is_text, shown

# The values that ask for nothing in the fields this engine does not act on yet.
_NEUTRAL: dict[str, tuple[object, ...]] = {
    "debug_config": (None,),
}
_RANGES = {
    "top_p": (0, 1),
    "min_p": (0, 1),
    "presence_penalty": (-2, 2),
    "frequency_penalty": (-2, 2),
    "top_logprobs": (0, 20),
}
_NUMBERS = ("n", "temperature", "max_tokens", "top_k", "repetition_penalty", *_RANGES)


@dataclass(frozen=True, slots=True)
class TextData:
    """A text of a prompt."""

    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class TokenData:
    """Token ids of a prompt."""

    token_ids: Sequence[int]


Data = TextData | TokenData
Prompt = str | Sequence[int] | Data | Sequence[Data]


@dataclass(frozen=True, slots=True)
class GenerationConfig:
    """How a request is sampled and when it ends; None is the model's own choice.

    Raises:
        BadRequestError: a field is out of range or not supported; `param` names it.
    """

    n: int = 1
    temperature: float | None = None  #: 0 is greedy.
    top_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    repetition_penalty: float | None = None
    logprobs: bool = False
    top_logprobs: int = 0
    logit_bias: Mapping[int, float] | None = None
    max_tokens: int = -1  #: -1 is no limit.
    seed: int | None = None
    stop_strs: Sequence[str] | None = None
    stop_token_ids: Sequence[int] | None = None
    response_format: Mapping[str, Any] | None = None
    debug_config: object = None
    top_k: int | None = None  #: Ours; 0 is off.
    min_p: float | None = None  #: Ours; 0 is off.
    min_tokens: int = 0  #: Ours: nothing stops before.
    ignore_eos: bool = False  #: Ours: go on where the model would end.
    priority: int = 0  #: Ours: the lower, the earlier.
    timeout: float | None = None  #: Ours: seconds to the end.
    first_token_timeout: float | None = None  #: Ours: seconds to the first token.
    inter_token_timeout: float | None = None  #: Ours: seconds from one token to the next.

    def __post_init__(self) -> None:
        for name, neutral in _NEUTRAL.items():
            if getattr(self, name) not in neutral:
                raise BadRequestError(f"{name} is not supported yet", param=name)

        for name in _NUMBERS:
            value = getattr(self, name)
            _check(value is None or _is_number(value), name, "should be a number")

        for name in ("n", "max_tokens"):
            _check(isinstance(getattr(self, name), int), name, "should be an integer")

        for name in ("max_tokens", "min_tokens", "top_k", "priority"):
            value = getattr(self, name) or 0
            _check(-(2**63) <= value < 2**63, name, "should fit 64 bits")

        _check(self.n >= 1, "n", "should be at least 1")
        _check(self.max_tokens == -1 or self.max_tokens >= 1, "max_tokens", "should be positive")
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            rule = f"should be in range [{low}, {high}]"
            _check(value is None or low <= value <= high, name, rule)

        for name in ("temperature", "top_k"):
            value = getattr(self, name)
            _check(value is None or value >= 0, name, "should be non-negative")

        penalty = self.repetition_penalty
        _check(penalty is None or penalty > 0, "repetition_penalty", "should be positive")
        _check(
            self.logprobs or not self.top_logprobs,
            "logprobs",
            'must be True to support "top_logprobs"',
        )
        _check(all(self.stop), "stop_strs", "has an empty string: a stop string cannot be empty")
        _check(all(is_text(str(text)) for text in self.stop), "stop_strs", NOT_TEXT)
        self._check_logit_bias()
        _ = self.format

    def _check_logit_bias(self) -> None:
        for token_id, bias in (self.logit_bias or {}).items():
            rule = f"should be in range [-100, 100], not {shown(bias)} for token {shown(token_id)}"
            _check(_is_number(bias) and -100 <= bias <= 100, "logit_bias", rule)

    @property
    def stop(self) -> tuple[str, ...]:
        """The stop strings."""
        return (self.stop_strs,) if isinstance(self.stop_strs, str) else tuple(self.stop_strs or ())

    @property
    def logprobs_wanted(self) -> int | None:
        """How many alternatives are told with each token; None is no log-probability at all."""
        return self.top_logprobs if self.logprobs else None

    @property
    def prompt_logprobs_wanted(self) -> int | None:
        """Nothing: an output of a step has no place for the prompt's."""
        return None

    @property
    def logits_processors(self) -> tuple[()]:
        """None: only the engines that serve streams have a place for their errors."""
        return ()

    @property
    def format(self) -> ResponseFormat | None:
        """What the text must be; None is any text."""
        wanted = self.response_format
        return None if wanted is None else parse_response_format(wanted)

    @property
    def token_limit(self) -> int | None:
        """The completion's tokens at most."""
        return None if self.max_tokens == -1 else self.max_tokens


class Request(NamedTuple):
    """A request that `add_request` takes; made by `create_request`."""

    request_id: str
    inputs: tuple[Data, ...]
    generation_config: GenerationConfig


class SingleRequestStreamOutput(NamedTuple):
    """What one sequence gained in a step, or what a whole request took when it has ended."""

    delta_token_ids: list[int]
    delta_text: str  #: Ours: the text of these tokens, less a stop string.
    finish_reason: str | None  #: "stop", "length", "abort", "error" or "timeout".
    request_final_usage_json_str: str | None  #: OpenAI's usage, in an output of its own.
    error: str | None = None  #: Ours: why it failed.
    delta_logprob_json_strs: list[str] | None = None  #: OpenAI's entry for each token.
    extra_prefix_string: str = ""

    @classmethod
    def of(cls, record: Record, logprobs: list[str] | None = None) -> Self:
        """What a record of the core says."""
        return cls(
            list(record.token_ids), record.text, record.finish_reason, None, record.error, logprobs
        )

    @classmethod
    def of_usage(cls, ends: Sequence[Record]) -> Self:
        """What a request took, by the last records of its sequences."""
        # The prompt counts once, as it was computed once: for the first choice.
        first = min(ends, key=lambda record: record.sequence_id)
        completion_tokens = sum(record.completion_tokens for record in ends)
        timings = [record.timing for record in ends if record.timing is not None]
        counts: dict[str, object] = {
            "prompt_tokens": first.prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": first.prompt_tokens + completion_tokens,
            "prompt_tokens_details": {"cached_tokens": first.cached_tokens},
        }
        extra = usage_extra(first.prompt_tokens, completion_tokens, first.cached_tokens, timings)
        if extra is not None:
            counts["extra"] = extra

        return cls([], "", None, json.dumps(counts))


class RequestStreamOutput(NamedTuple):
    """What one request gained in a step.

    After the last of a request there is one more, of one output, which has its usage.
    """

    request_id: str
    outputs: list[SingleRequestStreamOutput]

    def unpack(self) -> tuple[str, list[SingleRequestStreamOutput]]:
        """The request's id, and the gain of each of its sequences, or the one usage."""
        return self.request_id, self.outputs


def read_prompts(prompts: str | Sequence[int] | Sequence[Prompt]) -> list[tuple[Data, ...]]:
    """The inputs of each prompt, from whatever form the prompts have."""
    if isinstance(prompts, str) or (prompts and isinstance(prompts[0], int)):
        return [read_inputs(prompts)]

    return [read_inputs(prompt) for prompt in prompts]


def read_inputs(prompt: object) -> tuple[Data, ...]:
    """The inputs of one prompt.

    Raises:
        BadRequestError: there are none, or they are something else.
    """
    if isinstance(prompt, str):
        return (TextData(prompt),)

    if isinstance(prompt, (TextData, TokenData)):
        return (prompt,)

    parts = tuple(prompt) if isinstance(prompt, Sequence) else ()
    if not parts:
        raise BadRequestError("No input data is given.", param="inputs")

    if all(isinstance(part, int) for part in parts):
        return (TokenData(parts),)

    if not all(isinstance(part, (TextData, TokenData)) for part in parts):
        raise BadRequestError("a prompt is text, token ids or data", param="inputs")

    return parts


def one_config_each(
    config: GenerationConfig | Sequence[GenerationConfig] | None, count: int
) -> list[GenerationConfig]:
    """A config for each prompt.

    Raises:
        BadRequestError: there are more or fewer configs than prompts.
    """
    if config is None or isinstance(config, GenerationConfig):
        return [config or GenerationConfig()] * count

    if len(config) != count:
        raise BadRequestError(
            f"there are {count} prompts and {len(config)} generation configs",
            param="generation_config",
        )

    return list(config)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _check(holds: bool, name: str, rule: str) -> None:
    if not holds:
        raise BadRequestError(f'"{name}" {rule}', param=name)
