"""Operations on the columns of rows, on token ids, and with stored factors, in plain Relax."""

from __future__ import annotations

__all__ = (
    "ConcatColumns",
    "KnownIds",
    "PermuteColumns",
    "ScaleBy",
    "ScaleColumns",
    "SliceColumns",
)

from collections.abc import Sequence

import numpy as np
from tvm import relax
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn import op

from aiomlc.models.graph.module import Module


class KnownIds(Module):
    """Token ids `[n]`, with 0 in place of those that a smaller vocabulary does not have."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.vocab_size = vocab_size

    def forward(self, ids: nn.Tensor) -> nn.Tensor:
        size = nn.Tensor(_expr=relax.const(self.vocab_size, "int32"))
        return op.multiply(ids, op.less(ids, size).astype("int32"))


class SliceColumns(Module):
    """Consecutive columns of `[n, size]`."""

    def forward(self, x: nn.Tensor, begin: int, size: int) -> nn.Tensor:
        return _columns(x, begin, size)


class ConcatColumns(Module):
    """All columns of `a`, and then `size` columns of `b` from `begin` on."""

    def forward(self, a: nn.Tensor, b: nn.Tensor, begin: int, size: int) -> nn.Tensor:
        return op.concat([a, _columns(b, begin, size)], dim=-1)


class ScaleBy(Module):
    """Multiplication of every element by a stored factor `[1]`."""

    def forward(self, x: nn.Tensor, factor: nn.Tensor) -> nn.Tensor:
        return op.multiply(x, factor)


class ScaleColumns(Module):
    """Multiplication of each row by a stored vector."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight: nn.Parameter = nn.Parameter((size,), "float32")

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return op.multiply(x, self.weight)


class PermuteColumns(Module):
    """The columns of `[n, size]` in another order."""

    def __init__(self, order: Sequence[int]) -> None:
        super().__init__()
        self.order: tuple[int, ...] = tuple(order)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        order = nn.Tensor(_expr=relax.const(np.array(self.order, np.int32)))
        return op.take(x, order, axis=1)


def _columns(x: nn.Tensor, begin: int, size: int) -> nn.Tensor:
    if (begin, size) == (0, x.shape[-1]):
        return x

    columns = relax.op.strided_slice(x._expr, axes=[1], begin=[begin], end=[begin + size])
    return nn.Tensor(_expr=relax.BlockBuilder.current().emit(columns))
