"""What takes part: something that can measure itself in the units of the plan."""

from __future__ import annotations

__all__ = ("Contestant", "Meter", "Setup", "UnavailableError")

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from aiomlc.config import KVCacheType
from benchmarks.suite.plan import Kind

Meter = Callable[[int], float]  #: From a row's size to its value, in the row's unit.


class UnavailableError(Exception):
    """A file or a program is missing; the message says which, and where it comes from."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What every contestant is given."""

    model: Path  #: A Hugging Face directory.
    threads: int
    quantization: str  #: aiomlc's name of it.
    kv_cache_dtype: KVCacheType = "auto"  #: Of aiomlc; fresh processes have their own.


class Contestant(Protocol):
    """One engine. Between its turns it must not use the processor."""

    name: str

    def meters(self) -> Mapping[Kind, Meter]:
        """What it can measure; each call of a meter is one sample."""

    def close(self) -> None:
        """Free everything."""
