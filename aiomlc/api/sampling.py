"""From what a request chose and what its model prefers to what the core is told."""

from __future__ import annotations

__all__ = ("SamplingChoice", "sequence_options")

from collections.abc import Sequence
from typing import Protocol

from aiomlc.config import SequenceOptions
from aiomlc.runtime.loaded_model import LoadedModel


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
    def seed(self) -> int | None: ...
    @property
    def stop(self) -> tuple[str, ...]: ...
    @property
    def stop_token_ids(self) -> Sequence[int] | None: ...
    @property
    def ignore_eos(self) -> bool | None: ...
    @property
    def token_limit(self) -> int | None: ...


def sequence_options(choice: SamplingChoice, model: LoadedModel) -> SequenceOptions:
    """How the core samples and ends one sequence."""
    defaults = model.default_options
    temperature = choice.temperature
    top_p = choice.top_p
    ends = () if choice.ignore_eos else model.stop_token_ids
    return SequenceOptions(
        max_tokens=choice.token_limit,
        temperature=defaults.temperature if temperature is None else temperature,
        top_p=defaults.top_p if top_p is None else top_p,
        top_k=choice.top_k or 0,
        min_p=choice.min_p or 0.0,
        seed=choice.seed,
        stop=choice.stop,
        stop_token_ids=(*ends, *(choice.stop_token_ids or ())),
    )
