"""Layers with 4-bit matrices, which are dequantized in the graph."""

from __future__ import annotations

__all__ = ("Product", "dequantized_product", "lower_to_rows")

from collections.abc import Callable
from typing import Any, Final

from tvm import te, tirx
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn import op

from aiomlc.models.graph.decoder import Decoder
from aiomlc.models.graph.expert_product import expert_product
from aiomlc.models.graph.layers import Embedding, Linear
from aiomlc.models.graph.module import Module, Mutator
from aiomlc.models.parameters.packed_layout import GROUP_SIZE, ROW_GROUP_BYTES

#: Multiplies vectors with a matrix of 4 bits that has so many columns; the result is float32.
Product = Callable[[nn.Tensor, nn.Tensor, int], nn.Tensor]
_ZERO_POINT: Final = 7  # Of MLC LLM's `q4f16_1`.


class RowsLinear(Module):
    """A matrix product with a matrix of 4 bits."""

    def __init__(self, layer: Linear, product: Product) -> None:
        super().__init__()
        self._product = product
        self.inputs: int = layer.inputs
        self.out_dtype: str = layer.out_dtype
        self.weight: nn.Parameter = _rows_parameter(layer.outputs, layer.inputs)
        self.bias: nn.Parameter | None = layer.bias

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        y = self._product(x, self.weight, self.inputs)
        if self.bias is not None:
            y = op.add(y, self.bias)
        return y.astype(self.out_dtype)

    def of_experts(self, x: nn.Tensor, experts: nn.Tensor, count: int) -> nn.Tensor:
        """Return `expert_product`, which dequantizes the matrices of the chosen experts only."""
        return expert_product(x, experts, self.weight, self.bias, count, _element)


class RowsEmbedding(Module):
    """An embedding lookup in a matrix of 4 bits, and the tied output head."""

    def __init__(self, layer: Embedding, product: Product) -> None:
        super().__init__()
        self._product = product
        self.hidden_size: int = layer.hidden_size
        self.weight: nn.Parameter = _rows_parameter(layer.vocab_size, layer.hidden_size)

    def forward(self, ids: nn.Tensor) -> nn.Tensor:
        return _dequantized(op.take(self.weight, ids, axis=0), self.hidden_size)

    def project(self, x: nn.Tensor) -> nn.Tensor:
        return self._product(x, self.weight, self.hidden_size)


class _Lowering(Mutator):
    def __init__(self, product: Product) -> None:
        super().__init__()
        self._product = product

    def visit_module(self, name: str, node: nn.Module) -> nn.Module:
        match node:
            case Linear(keep_float32=False):
                return RowsLinear(node, self._product)
            case Embedding():
                return RowsEmbedding(node, self._product)
            case _:
                return super().visit_module(name, node)


def dequantized_product(x: nn.Tensor, weight: nn.Tensor, columns: int) -> nn.Tensor:
    """Return the product with a matrix that is dequantized to float32 first."""
    return op.matmul(x.astype("float32"), op.permute_dims(_dequantized(weight, columns)))


def lower_to_rows(decoder: Decoder, product: Product = dequantized_product) -> Decoder:
    """Return the decoder with 4-bit matrices, except those that stay float32."""
    lowered: Decoder = _Lowering(product).visit("", decoder)
    return lowered


def _rows_parameter(rows: int, columns: int) -> nn.Parameter:
    groups = -(-columns // GROUP_SIZE)
    return nn.Parameter((rows, groups, ROW_GROUP_BYTES), "uint8")


def _dequantized(weight: nn.Tensor, columns: int) -> nn.Tensor:
    """Return float32 `[rows, columns]` for `uint8[rows, groups, ROW_GROUP_BYTES]`."""

    def compute(packed: Any) -> te.Tensor:  # noqa: ANN401 - tvm is untyped.
        rows, groups, _ = packed.shape
        # Computed first, because a generic processor converts float16 slowly.
        scales: Any = te.compute(
            (rows, groups), lambda *group: _scale(packed, *group), name="scales"
        )

        def element(row: Any, column: Any) -> Any:  # noqa: ANN401 - tvm is untyped.
            return _code(packed, row, column) * scales[row, column // GROUP_SIZE]

        return te.compute((rows, columns), element, name="dequantize")

    return op.tensor_expr_op(compute, "dequantize", [weight])


def _scale(packed: te.Tensor, row: tirx.Var, group: tirx.Var) -> tirx.Expr:
    """Return the scale of a group, a float16 after its codes, as float32."""
    low = packed[row, group, GROUP_SIZE // 2].astype("uint16")
    high = packed[row, group, GROUP_SIZE // 2 + 1].astype("uint16")
    bits = tirx.bitwise_or(low, tirx.shift_left(high, tirx.const(8, "uint16")))
    return tirx.reinterpret("float16", bits).astype("float32")


def _code(packed: te.Tensor, row: Any, column: Any) -> Any:  # noqa: ANN401 - tvm is untyped.
    """Return the number of a weight, which its scale multiplies, as float32."""
    index = column % GROUP_SIZE
    byte = packed[row, column // GROUP_SIZE, index // 2].astype("int32")
    code = tirx.bitwise_and(tirx.shift_right(byte, 4 * (index.astype("int32") % 2)), 15)
    return (code - _ZERO_POINT).astype("float32")


def _element(packed: te.Tensor, row: Any, column: Any) -> Any:  # noqa: ANN401 - tvm is untyped.
    return _code(packed, row, column) * _scale(packed, row, column // GROUP_SIZE)
