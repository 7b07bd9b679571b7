"""From what a request chose and what its model prefers to what the core is told."""

from __future__ import annotations

__all__ = ("SamplingChoice", "sequence_options")

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar

from aiomlc.errors import BadRequestError
from aiomlc.runtime.engine.logits_processors import LogitsProcessor, LogitsProcessors
from aiomlc.runtime.loading.loaded_model import LoadedModel
from aiomlc.sampling_params import SequenceOptions
from aiomlc.validation.json_values import short_repr

_T = TypeVar("_T")
# Below the share of any token, so that the likeliest alone is left.
_SMALLEST_TOP_P = 1e-9


class SamplingChoice(Protocol):
    """What a request may choose; None leaves it to the model."""

    @property
    def temperature(self) -> float | None: ...
    @property
    def top_p(self) -> float | None: ...
    @property
    def top_k(self) -> int | None: ...
    @property
    def min_p(self) -> float | None: ...
    @property
    def presence_penalty(self) -> float | None: ...
    @property
    def frequency_penalty(self) -> float | None: ...
    @property
    def repetition_penalty(self) -> float | None: ...
    @property
    def logit_bias(self) -> Mapping[int, float] | None: ...
    @property
    def min_tokens(self) -> int | None: ...
    @property
    def num_logprobs(self) -> int | None: ...
    @property
    def num_prompt_logprobs(self) -> int | None: ...
    @property
    def logits_processors(self) -> Sequence[LogitsProcessor] | None: ...
    @property
    def priority(self) -> int | None: ...
    @property
    def timeout(self) -> float | None: ...
    @property
    def first_token_timeout(self) -> float | None: ...
    @property
    def inter_token_timeout(self) -> float | None: ...
    @property
    def seed(self) -> int | None: ...
    @property
    def stop(self) -> tuple[str, ...]: ...
    @property
    def stop_token_ids(self) -> Sequence[int] | None: ...
    @property
    def ignore_eos(self) -> bool | None: ...
    @property
    def max_new_tokens(self) -> int | None: ...


def sequence_options(choice: SamplingChoice, model: LoadedModel) -> SequenceOptions:
    """How the core samples and ends one sequence.

    Raises:
        BadRequestError: `logit_bias` names a token that the vocabulary does not have.
    """
    defaults = model.default_options
    ends = () if choice.ignore_eos else model.stop_token_ids
    return SequenceOptions(
        max_tokens=choice.max_new_tokens,
        temperature=_chosen(choice.temperature, defaults.temperature),
        top_p=max(_SMALLEST_TOP_P, _chosen(choice.top_p, defaults.top_p)),
        top_k=_chosen(choice.top_k, defaults.top_k),
        min_p=_chosen(choice.min_p, defaults.min_p),
        presence_penalty=_chosen(choice.presence_penalty, defaults.presence_penalty),
        frequency_penalty=_chosen(choice.frequency_penalty, defaults.frequency_penalty),
        repetition_penalty=_chosen(choice.repetition_penalty, defaults.repetition_penalty),
        logit_bias=_logit_bias(choice, model),
        min_tokens=choice.min_tokens or 0,
        top_logprobs=choice.num_logprobs,
        prompt_logprobs=choice.num_prompt_logprobs,
        logits_processors=_processors(choice),
        priority=choice.priority or 0,
        timeout=choice.timeout,
        first_token_timeout=choice.first_token_timeout,
        inter_token_timeout=choice.inter_token_timeout,
        seed=choice.seed,
        stop=choice.stop,
        stop_token_ids=(*ends, *(choice.stop_token_ids or ())),
    )


def _chosen(choice: _T | None, default: _T) -> _T:
    return default if choice is None else choice


def _processors(choice: SamplingChoice) -> LogitsProcessors | None:
    functions = choice.logits_processors
    return LogitsProcessors(functions) if functions else None


def _logit_bias(choice: SamplingChoice, model: LoadedModel) -> tuple[tuple[int, float], ...]:
    entries = tuple((choice.logit_bias or {}).items())
    for token_id, _ in entries:
        if token_id >= model.vocab_size:
            raise BadRequestError(
                f"logit_bias has token {short_repr(token_id)}, "
                f"the vocabulary has {model.vocab_size} tokens",
                param="logit_bias",
            )

    return entries
