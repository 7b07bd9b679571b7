"""The rows of a fused matrix, where a Hugging Face directory has them in another order."""

from __future__ import annotations

__all__ = (
    "Parameter",
    "RowOrder",
    "source_runs",
)

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

RowOrder = tuple[int, int, int, int]
"""`(a, b, c, d)`: our rows are `[a, b, c, d]` where the sources' are `[a, c, b, d]`. Rows behind
these are as they are."""


def source_runs(order: RowOrder, rows: int) -> Iterator[tuple[int, int]]:
    """Which rows of the sources make ours: the first of each run, and how many."""
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
    """One parameter. A matrix is `[outputs, inputs]` and its sources are stacked on axis 0."""

    name: str  #: In the graph.
    kind: Literal["matrix", "vector"]
    shape: tuple[int, ...]
    sources: tuple[str, ...]  #: Tensors of a Hugging Face directory.
    mlc_name: str = ""  #: Where MLC's is another.
    mlc_parts: tuple[str, ...] = ()  #: Where MLC has several, in the order of their rows.
    #: What the elements in a Hugging Face directory leave out; in MLC's they are whole.
    added: float = 0.0
    order: RowOrder | None = None  #: Of the rows in a Hugging Face directory, where another.
    #: The tensor that some files have in place of all sources; its outputs may be several axes.
    whole: str = ""
    exact: bool = False  #: Whether a matrix is float32 whatever the quantisation.
