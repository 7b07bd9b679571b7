"""How `SyncMLCEngine` samples a request and when it ends, under upstream's names."""

from __future__ import annotations

__all__ = ("GenerationConfig",)

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aiomlc.api.protocol.response_format import ResponseFormat, parse_response_format
from aiomlc.errors import BadRequestError
from aiomlc.runtime.engine.logits_processors import LogitsProcessor
from aiomlc.validation.arguments import check_flag, check_type
from aiomlc.validation.json_values import NOT_UTF8, is_utf8, short_repr

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
    "prompt_logprobs": (0, 20),
}
_TIMES = ("timeout", "first_token_timeout", "inter_token_timeout")
_INTEGERS = (
    *("n", "max_tokens", "min_tokens", "top_k", "top_logprobs", "prompt_logprobs"),
    *("priority", "seed"),
)
_NUMBERS = ("temperature", "repetition_penalty", *_RANGES, *_TIMES, *_INTEGERS)


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
    prompt_logprobs: int | None = None  #: Ours: alternatives of each token of the prompt.
    #: Ours: functions that change the logits of each token.
    logits_processors: Sequence[LogitsProcessor] | None = None

    def __post_init__(self) -> None:
        for name, neutral in _NEUTRAL.items():
            if getattr(self, name) not in neutral:
                raise BadRequestError(f"{name} is not supported yet", param=name)

        self._check_numbers()
        for name in ("logprobs", "ignore_eos"):
            check_flag(name, getattr(self, name))

        _check(
            self.logprobs or not self.top_logprobs,
            "logprobs",
            'must be True to support "top_logprobs"',
        )
        self._check_stops()
        self._check_logit_bias()
        self._check_processors()
        _ = self.format

    @property
    def stop(self) -> tuple[str, ...]:
        """The stop strings."""
        return (self.stop_strs,) if isinstance(self.stop_strs, str) else tuple(self.stop_strs or ())

    @property
    def num_logprobs(self) -> int | None:
        """How many alternatives are told with each token; None is no log-probability at all."""
        return self.top_logprobs if self.logprobs else None

    @property
    def num_prompt_logprobs(self) -> int | None:
        """How many alternatives are told with each token of the prompt; None: nothing is told."""
        return self.prompt_logprobs

    @property
    def format(self) -> ResponseFormat | None:
        """What the text must be; None is any text."""
        wanted = self.response_format
        return None if wanted is None else parse_response_format(wanted)

    @property
    def max_new_tokens(self) -> int | None:
        """The completion's tokens at most."""
        return None if self.max_tokens == -1 else self.max_tokens

    def _check_numbers(self) -> None:
        for name in _NUMBERS:
            value = getattr(self, name)
            _check(value is None or _is_number(value), name, "should be a number")

        for name in _INTEGERS:
            value = getattr(self, name)
            is_needed = name in ("n", "max_tokens")
            is_integer = isinstance(value, int) or (value is None and not is_needed)
            _check(is_integer, name, "should be an integer")
            _check(-(2**63) <= (value or 0) < 2**63, name, "should fit 64 bits")

        _check(self.n >= 1, "n", "should be at least 1")
        _check(self.max_tokens == -1 or self.max_tokens >= 1, "max_tokens", "should be positive")
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            rule = f"should be in range [{low}, {high}]"
            _check(value is None or low <= value <= high, name, rule)

        for name in ("temperature", "top_k", "min_tokens"):
            value = getattr(self, name)
            _check(value is None or value >= 0, name, "should be non-negative")

        for name in ("repetition_penalty", *_TIMES):
            value = getattr(self, name)
            _check(value is None or value > 0, name, "should be positive")

    def _check_stops(self) -> None:
        if not isinstance(self.stop_strs, str):
            _check_list("stop_strs", self.stop_strs or (), (str,), "texts")

        _check(all(self.stop), "stop_strs", "has an empty string: a stop string cannot be empty")
        _check(all(map(is_utf8, self.stop)), "stop_strs", NOT_UTF8)
        name, ids = "stop_token_ids", self.stop_token_ids
        if ids is not None:
            _check_list(name, ids, (int,), "token ids")
            _check(all(-(2**63) <= one < 2**63 for one in ids), name, "should fit 64 bits")

    def _check_logit_bias(self) -> None:
        check_type("logit_bias", self.logit_bias, (Mapping, type(None)), "a mapping")
        for token_id, bias in (self.logit_bias or {}).items():
            is_id = type(token_id) is int and token_id >= 0
            _check(is_id, "logit_bias", "has a key that is no token id")
            where = f"{short_repr(bias)} for token {short_repr(token_id)}"
            rule = f"should be in range [-100, 100], not {where}"
            _check(_is_number(bias) and -100 <= bias <= 100, "logit_bias", rule)

    def _check_processors(self) -> None:
        name, processors = "logits_processors", self.logits_processors
        check_type(name, processors, (Sequence, type(None)), "a list of functions")
        _check(all(map(callable, processors or ())), name, "has something that is no function")


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False

    return isinstance(value, int) or math.isfinite(value)


def _check_list(name: str, values: object, types: tuple[type, ...], what: str) -> None:
    is_list = isinstance(values, Collection) and not isinstance(values, (str, bytes, Mapping))
    _check(is_list, name, f"should be a list of {what}")
    assert isinstance(values, Collection), "checked above"
    _check(all(type(value) in types for value in values), name, f"should be a list of {what}")


def _check(holds: bool, name: str, rule: str) -> None:
    if not holds:
        raise BadRequestError(f'"{name}" {rule}', param=name)
