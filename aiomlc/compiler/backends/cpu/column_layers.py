"""Operations on the columns of rows, on token ids, and with stored factors, as native kernels."""

from __future__ import annotations

__all__ = ("COLUMN_LAYERS",)

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from tvm import relax
from tvm.relax.frontend import nn

from aiomlc.compiler.backends.cpu.kernel_call import KernelCall, call_kernel
from aiomlc.models.graph.columns import (
    ConcatColumns,
    KnownIds,
    PermuteColumns,
    ScaleBy,
    ScaleColumns,
    SliceColumns,
)
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


class CpuScaleColumns(Module):
    """Multiplication by a stored vector."""

    def __init__(self, layer: ScaleColumns) -> None:
        super().__init__()
        self.weight: Any = layer.weight

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return call_kernel("scale_columns", [x, self.weight], x.shape, "float32")


class CpuPermuteColumns(Module):
    """Columns in another order."""

    def __init__(self, layer: PermuteColumns) -> None:
        super().__init__()
        self.order: tuple[int, ...] = layer.order

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        order = nn.Tensor(_expr=relax.const(np.array(self.order, np.int32)))
        return call_kernel("gather_columns", [x, order], x.shape, "float32")


#: Replacements of the layers of the graph.
COLUMN_LAYERS: Mapping[type, Callable[[Any], nn.Module]] = {
    ConcatColumns: CpuConcatColumns,
    KnownIds: CpuKnownIds,
    PermuteColumns: CpuPermuteColumns,
    ScaleBy: lambda _: KernelCall("scale_by"),
    ScaleColumns: CpuScaleColumns,
    SliceColumns: CpuSliceColumns,
}
