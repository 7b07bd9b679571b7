"""A model's parameters: their shapes, and the tensors that they are read from."""

from __future__ import annotations

__all__ = (
    "Parameter",
    "RowOrder",
    "source_runs",
)

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from aiomlc.models.config.checkpoint import HFExpertsLayout

RowOrder = tuple[int, int, int, int]
"""`(a, b, c, d)`: the graph's rows are `[a, b, c, d]` where the source's rows are `[a, c, b, d]`.
Rows after these keep their order."""


def source_runs(order: RowOrder, rows: int) -> Iterator[tuple[int, int]]:
    """Yield `(first source row, number of rows)` for each run of consecutive source rows, in the
    graph's row order."""
    outer, second, first, run = order
    for block in range(outer):
        for j in range(second):
            for i in range(first):
                yield ((block * first + i) * second + j) * run, run
    covered = outer * second * first * run
    if covered < rows:
        yield covered, rows - covered


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of the graph. A matrix is `[outputs, inputs]`; its sources stack on axis 0.

    An order is `[inputs]`: the inputs of a matrix with the same sources, as its columns have them.
    """

    name: str  #: In the graph.
    kind: Literal["matrix", "vector", "order"]
    shape: tuple[int, ...]
    sources: tuple[str, ...]  #: Tensors of a Hugging Face directory.
    mlc_name: str = ""  #: In an MLC directory; empty means `name`.
    mlc_parts: tuple[str, ...] = ()  #: Parameters that an MLC directory has in place of this one.
    #: Added to every element (RMSNorm offset); 0 for MLC directories, which already include it.
    weight_offset: float = 0.0
    row_order: RowOrder | None = None  #: Row order in a Hugging Face directory, if it differs.
    #: Single tensor that some Hugging Face directories have in place of all `sources`. Its rows may
    #: span several axes.
    fused_source: str = ""
    fused_row_order: RowOrder | None = None  #: The row order of `fused_source`, if it differs.
    fused_layout: HFExpertsLayout = "outputs"
    num_experts: int = 0  #: Experts whose matrices it holds, one after the other; 0 for no experts.
    keep_float32: bool = False  #: Whether a matrix stays float32 in every quantization.
