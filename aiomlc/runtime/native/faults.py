"""Faults that can be injected into a native model, for tests."""

from __future__ import annotations

__all__ = ("Faults",)

from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """Injected faults of a real model; None for never.

    Steps are forward passes, counted from 1 for each opened model. The NaN fields count only passes
    with logits, which excludes prefill chunks other than the last one of a prompt.
    """

    fail_at_step: int | None = None  #: Step at which the model fails, which kills the engine.
    allocation_fails_at_load: bool = False  #: Whether the allocation of the KV cache fails.
    allocation_fails_at_step: int | None = None  #: Step at which an allocation fails.
    nan_at_step: int | None = None  #: Step at which one row of the logits is NaN.
    nan_every: int | None = None  #: Number of steps between rows of NaN.
    draft: Self | None = None  #: Faults of the draft model, whose steps are counted separately.
