"""The rows of a fused matrix, where a Hugging Face directory has them in another order."""

from __future__ import annotations

__all__ = ("RowOrder", "source_runs")

from collections.abc import Iterator

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
