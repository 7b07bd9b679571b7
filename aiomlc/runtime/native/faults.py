"""What is to go wrong in a native model, on purpose."""

from __future__ import annotations

__all__ = ("Faults",)

from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """Faults of a model that is otherwise the real one; None is never.

    Steps are forward passes, counted from 1 for each model that is opened. A pass without logits
    (a piece of a prompt that is not its last) is none of those that the NaN fields count.
    """

    fail_at_step: int | None = None  #: The model fails, and the engine with it.
    allocation_fails_at_load: bool = False  #: There is no room for the KV cache.
    allocation_fails_at_step: int | None = None  #: The model runs out of memory.
    nan_at_step: int | None = None  #: A kernel returns NaN for one row.
    nan_every: int | None = None  #: It does so every so many steps.
    draft: Self | None = None  #: Faults of the smaller model that guesses, which has its own steps.
