"""Operations on the columns of rows, on token ids, and with stored factors, as native kernels."""

from __future__ import annotations

__all__ = ("COLUMN_LAYERS",)

from collections.abc import Callable, Mapping
from typing import Any

from tvm.relax.frontend import nn

from aiomlc.compiler.backends.cpu.layers import call_kernel
from aiomlc.models.graph.columns import ConcatColumns, KnownIds, ScaleBy, SliceColumns
from aiomlc.models.graph.module import Module


class CpuKnownIds(Module):
    """Token ids of a smaller vocabulary."""

    def __init__(self, layer: KnownIds) -> None:
        super().__init__()
        self.vocab_size: int = layer.vocab_size

    def forward(self, ids: nn.Tensor) -> nn.Tensor:
        return call_kernel("known_ids", [ids, self.vocab_size], ids.shape, "int32")


class CpuSliceColumns(Module):
    """Consecutive columns."""

    def __init__(self, _: SliceColumns) -> None:
        super().__init__()

    def forward(self, x: nn.Tensor, begin: int, size: int) -> nn.Tensor:
        return call_kernel("slice_columns", [x, begin], (x.shape[0], size), x.dtype)


class CpuConcatColumns(Module):
    """All columns of one tensor, and some of another."""

    def __init__(self, _: ConcatColumns) -> None:
        super().__init__()

    def forward(self, a: nn.Tensor, b: nn.Tensor, begin: int, size: int) -> nn.Tensor:
        shape = (a.shape[0], int(a.shape[1]) + size)
        return call_kernel("concat_columns", [a, b, begin], shape, a.dtype)


class CpuScaleBy(Module):
    """Multiplication by a stored factor."""

    def __init__(self, _: ScaleBy) -> None:
        super().__init__()

    def forward(self, x: nn.Tensor, factor: nn.Tensor) -> nn.Tensor:
        return call_kernel("scale_by", [x, factor], x.shape, "float32")


#: Replacements of the layers of the graph.
COLUMN_LAYERS: Mapping[type, Callable[[Any], nn.Module]] = {
    ConcatColumns: CpuConcatColumns,
    KnownIds: CpuKnownIds,
    ScaleBy: CpuScaleBy,
    SliceColumns: CpuSliceColumns,
}
