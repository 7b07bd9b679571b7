"""Protocol of the engines that the suite measures, and their common settings."""

from __future__ import annotations

__all__ = ("MeasuredEngine", "Meter", "Setup", "UnavailableError")

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from benchmarks.suite.plan import Kind

if TYPE_CHECKING:  # A peer's Python does not have it.
    from aiomlc.config import KVCacheType

Meter = Callable[[int], float]  #: Takes a row's size and returns its value in the row's unit.


class UnavailableError(Exception):
    """A required file or program is missing; the message names it and its source."""


@dataclass(frozen=True, slots=True)
class Setup:
    """Settings common to all measured engines."""

    model: Path  #: A Hugging Face directory.
    threads: int
    quantization: str  #: aiomlc's name of the quantization; without effect on `opened`.
    kv_cache_dtype: KVCacheType = "auto"  #: aiomlc only; ignored by `run_fresh`.
    #: What aiomlc opens if not `model`: the same model, quantized by another program.
    opened: Path | None = None

    @property
    def path(self) -> Path:
        """What aiomlc opens."""
        return self.model if self.opened is None else self.opened

    @property
    def path_quantization(self) -> str | None:
        """The quantization in which aiomlc opens it; None for its own."""
        return self.quantization if self.opened is None else None


class MeasuredEngine(Protocol):
    """An engine that takes part; it must not use the processor between its measurements."""

    name: str

    def meters(self) -> Mapping[Kind, Meter]:
        """Return a meter for each supported kind of row; each call yields one sample."""

    def close(self) -> None:
        """Release all resources."""
