"""A decoded recording."""

from __future__ import annotations

__all__ = ("Recording",)

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

import numpy as np

from aiomlc.runtime.audio.decode import SAMPLE_RATE

if TYPE_CHECKING:
    from numpy.typing import NDArray


@final
@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """Mono audio at `SAMPLE_RATE`."""

    samples: NDArray[np.float32] = field(repr=False)  #: `[samples]`, at least one.
    digest: bytes = field(init=False, repr=False)  #: SHA-256 of the samples.

    def __post_init__(self) -> None:
        samples = np.ascontiguousarray(self.samples)
        object.__setattr__(self, "digest", hashlib.sha256(samples.data).digest())

    @property
    def seconds(self) -> float:
        """The duration."""
        return len(self.samples) / SAMPLE_RATE
