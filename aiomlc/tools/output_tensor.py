"""A tensor of an MLC directory, and the parts of the checkpoint that it is made of."""

from __future__ import annotations

__all__ = ("OutputTensor", "Rows", "Storage")

import math
from dataclasses import dataclass
from typing import Literal

from aiomlc.tools.mlc_format import StoredDtype
from aiomlc.weights.formats.source import SourceTensor

#: `raw` is float32 with all of its bits; `plain` has 16 bits of it, as MLC LLM's files do.
Storage = Literal["plain", "raw", "groups", "progressive", "fp8"]


@dataclass(frozen=True, slots=True)
class Rows:
    """Consecutive rows of a tensor of the checkpoint."""

    tensor: SourceTensor
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class OutputTensor:
    """A tensor of the model, which is stored as it is or as several: values and scales."""

    name: str  #: In the directory; of a matrix to quantize without `.weight`.
    shape: tuple[int, ...]  #: `[rows, columns]`; of experts `[experts, rows, columns]`.
    rows: tuple[Rows, ...]  #: Stacked; side by side if `is_side_by_side`.
    dtype: StoredDtype  #: Of its elements, or of its scales. Floats are converted to it.
    storage: Storage = "plain"
    is_transposed: bool = False
    is_side_by_side: bool = False
    weight_offset: float = 0.0  #: Added to every element.

    @property
    def columns(self) -> int:
        """Elements of a row."""
        return self.shape[-1] if len(self.shape) > 1 else 1

    @property
    def num_rows(self) -> int:
        """Rows, with those of all experts."""
        return math.prod(self.shape) // self.columns
