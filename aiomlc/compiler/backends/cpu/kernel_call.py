"""Calls to native kernels, and the layers that are no more than one."""

from __future__ import annotations

__all__ = ("KERNEL_PREFIX", "KernelCall", "RowsCall", "call_kernel", "call_with_sum")

from collections.abc import Sequence
from typing import Any

from tvm import relax
from tvm.relax.frontend import nn

from aiomlc.compiler.backends.cpu.matrix import KernelLayout
from aiomlc.models.graph.module import Module

KERNEL_PREFIX = "aiomlc.cpu."


class KernelCall(Module):
    """A kernel of tensors and then numbers, whose output has the shape of the first tensor."""

    def __init__(self, name: str, *numbers: float) -> None:
        super().__init__()
        self.name = name
        self.numbers = numbers

    def forward(self, x: nn.Tensor, *others: nn.Tensor) -> nn.Tensor:
        return call_kernel(self.name, [x, *others, *self.numbers], x.shape, "float32")


class RowsCall(Module):
    """A kernel of rows, whose output has one for each item of a second tensor."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def forward(self, x: nn.Tensor, items: nn.Tensor) -> nn.Tensor:
        return call_kernel(self.name, [x, items], (items.shape[0], x.shape[1]), "float32")


def call_kernel(name: str, inputs: Sequence[object], shape: Sequence[Any], dtype: str) -> nn.Tensor:
    """Return the output of a call to a kernel.

    Args:
        name: The kernel's name without its prefix.
        inputs: Tensors and scalars.
        shape: The output's shape.
        dtype: The output's dtype.
    """
    out = relax.TensorType(tuple(shape), dtype)
    call = relax.call_dps_packed(KERNEL_PREFIX + name, [_expr(x) for x in inputs], out_ty=out)
    return nn.Tensor(_expr=relax.BlockBuilder.current().emit(call))


def call_with_sum(
    name: str, inputs: Sequence[object], out: relax.TensorType, total: relax.TensorType
) -> tuple[nn.Tensor, nn.Tensor]:
    """Return both outputs of a call to a fused kernel: its result, and the sum it normalized."""
    exprs = [_expr(value) for value in inputs]
    call = relax.call_dps_packed(KERNEL_PREFIX + name, exprs, out_ty=[out, total])
    builder = relax.BlockBuilder.current()
    outputs = builder.emit(call)
    fields = [builder.emit(relax.TupleGetItem(outputs, i)) for i in (0, 1)]
    return nn.Tensor(_expr=fields[0]), nn.Tensor(_expr=fields[1])


def _expr(value: object) -> Any:  # noqa: ANN401 - tvm is untyped.
    if isinstance(value, nn.Tensor):
        return value._expr

    if isinstance(value, KernelLayout):
        return relax.ShapeExpr(value.numbers)

    if isinstance(value, relax.ShapeExpr):
        return value

    return relax.prim_value(value)
