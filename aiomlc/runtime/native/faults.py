"""Faults that can be injected into a native model, for tests."""

from __future__ import annotations

__all__ = ("Faults",)

from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """Injected faults of a real model; None for never.

    Forward passes are counted from 1 for each opened model. The NaN fields count only passes with
    logits, which excludes prefill chunks other than the last one of a prompt.
    """

    fail_at_pass: int | None = None  #: Pass that fails, which kills the engine.
    allocation_fails_at_load: bool = False  #: Whether the allocation of the KV cache fails.
    allocation_fails_at_pass: int | None = None  #: Pass in which an allocation fails.
    nan_at_pass: int | None = None  #: Pass with a row of NaN logits.
    nan_every: int | None = None  #: Every n-th pass has a row of NaN logits.
    fail_at_import: int | None = None  #: Import of a prefix that fails, which kills the engine.
    draft: Self | None = None  #: Faults of the draft model, whose passes are counted separately.
