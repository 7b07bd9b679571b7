"""A model's parameters: their shapes, and the tensors that they are read from."""

from __future__ import annotations

__all__ = (
    "Parameter",
    "RowOrder",
    "Split",
    "source_runs",
)

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from aiomlc.models.config.checkpoint import HFExpertsLayout


@dataclass(frozen=True, slots=True)
class RowOrder:
    """The order of a source's rows: `[blocks, groups, sum(parts)]`. In each block, the graph has
    the first part of all groups, then the second one. Rows after these keep their order."""

    blocks: int
    groups: int
    parts: tuple[int, ...]  #: The consecutive rows of each part in a group.


def source_runs(order: RowOrder, rows: int) -> Iterator[tuple[int, int]]:
    """Yield `(first source row, number of rows)` for each run of consecutive source rows, in the
    graph's row order."""
    size = sum(order.parts)
    for block in range(order.blocks):
        start = block * order.groups * size
        for part in order.parts:
            yield from ((start + group * size, part) for group in range(order.groups))
            start += part
    covered = order.blocks * order.groups * size
    if covered < rows:
        yield covered, rows - covered


@dataclass(frozen=True, slots=True)
class Split:
    """The division of a parameter among shards, in the graph's order of its rows.

    `rows`: each shard has an equal part of each segment. `columns`: each has an equal part of the
    columns, and its products are added to those of the others. `first`: a vector that is added to
    such products, so the first shard has it and the others have zeros.
    """

    axis: Literal["rows", "columns", "first"]
    segments: tuple[int, ...] = ()  #: The rows of each segment.

    def row_runs(self, shard: int, shards: int) -> tuple[tuple[int, int], ...]:
        """Return the runs of a shard's rows: the first row and their number."""
        runs, begin = [], 0
        for rows in self.segments:
            part = rows // shards
            runs.append((begin + shard * part, part))
            begin += rows
        return tuple(runs)


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
    split: Split | None = None  #: Its division among shards; None if each has all of it.
    shards: int = 1  #: The shards that it is divided among.
