"""Packed matrices in the graph: their parameters, and the layouts that kernels are called with."""

from __future__ import annotations

__all__ = ("KernelLayout", "expert_layout", "matrix_parameter")

from itertools import groupby
from typing import Any, NamedTuple

from tvm.relax.frontend import nn

from aiomlc.models.parameters.matrix_format import MatrixFormat
from aiomlc.models.parameters.packed_layout import Layout, packed_bytes


class KernelLayout(NamedTuple):
    """The argument of a kernel that describes a matrix."""

    layout: Layout

    @property
    def numbers(self) -> tuple[int, ...]:
        """The code of the format and the rows of each segment, alternately."""
        return tuple(
            number for name, rows in self.layout for number in (MatrixFormat.parse(name).code, rows)
        )


def matrix_parameter(layout: Layout, inputs: int) -> Any:  # noqa: ANN401 - tvm is untyped.
    """Return the graph's parameter for a packed matrix."""
    size = sum(packed_bytes(name, rows, inputs) for name, rows in layout)
    return nn.Parameter((size,), "uint8")


def expert_layout(layout: Layout, count: int) -> Layout:
    """Return the layout of one of `count` equal matrices, whose rows `layout` describes together.

    Raises:
        ValueError: If the matrices have different layouts.
    """
    rows = sum(segment_rows for _, segment_rows in layout) // count
    first = []
    left = rows
    for name, segment_rows in layout:
        if left:
            first.append((name, min(left, segment_rows)))
            left -= first[-1][1]
    if _merged(layout) != _merged(tuple(first) * count):
        raise ValueError(f"the matrices of {count} experts have different formats: {layout}")

    return tuple(first)


def _merged(layout: Layout) -> Layout:
    runs = groupby(layout, key=lambda segment: segment[0])
    return tuple((name, sum(rows for _, rows in segments)) for name, segments in runs)
