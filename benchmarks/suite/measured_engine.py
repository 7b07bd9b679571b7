"""Protocol of the engines that the suite measures, and their common settings."""

from __future__ import annotations

__all__ = ("MeasuredEngine", "Meter", "Setup", "UnavailableError")

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from aiomlc.config import KVCacheType
from benchmarks.suite.plan import Kind

Meter = Callable[[int], float]  #: Takes a row's size and returns its value in the row's unit.


class UnavailableError(Exception):
    """A required file or program is missing; the message names it and its source."""


@dataclass(frozen=True, slots=True)
class Setup:
    """Settings common to all measured engines."""

    model: Path  #: A Hugging Face directory.
    threads: int
    quantization: str  #: aiomlc's name of the quantization.
    kv_cache_dtype: KVCacheType = "auto"  #: aiomlc only; ignored by `run_fresh`.


class MeasuredEngine(Protocol):
    """An engine that takes part; it must not use the processor between its measurements."""

    name: str

    def meters(self) -> Mapping[Kind, Meter]:
        """Return a meter for each supported kind of row; each call yields one sample."""

    def close(self) -> None:
        """Release all resources."""
