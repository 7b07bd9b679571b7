"""Products of rows with the matrices of the experts that a router chose for them."""

from __future__ import annotations

__all__ = ("Element", "expert_product", "highest_experts")

from collections.abc import Callable
from typing import Any, Final

from tvm import te, tirx
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn import op

_OPAQUE: Final = 8  # TVM's OpPatternKind: is not fused with others.

#: Returns the float32 at `(row, column)` of a stored matrix.
Element = Callable[[Any, Any, Any], Any]


def highest_experts(keys: nn.Tensor, scores: nn.Tensor, chosen: int) -> tuple[nn.Tensor, nn.Tensor]:
    """Return the `chosen` experts with the highest keys, int32 `[n, chosen]`, and their scores.

    Of equal keys, that of the first expert is the higher one.

    Args:
        keys: `[n, count]`.
        scores: `[n, count]`.
        chosen: At most `count`.
    """

    def ranks(keys: te.Tensor) -> te.Tensor:
        n, count = keys.shape
        other = te.reduce_axis((0, count), "other")

        def is_before(row: Any, expert: Any) -> Any:  # noqa: ANN401 - tvm is untyped.
            key, own = keys[row, other], keys[row, expert]
            first = tirx.all(key == own, other < expert)
            return te.sum(tirx.any(key > own, first).astype("int32"), axis=other)

        return te.compute((n, count), is_before, name="ranks")

    def of_rank(values: te.Tensor, ranks: te.Tensor) -> te.Tensor:
        n, count = ranks.shape
        expert = te.reduce_axis((0, count), "expert")

        def element(row: Any, rank: Any) -> Any:  # noqa: ANN401 - tvm is untyped.
            value = values[row, expert]
            zero = tirx.const(0, value.dtype)
            return te.sum(tirx.Select(ranks[row, expert] == rank, value, zero), axis=expert)

        return te.compute((n, chosen), element, name="of_rank")

    def index_of_rank(ranks: te.Tensor) -> te.Tensor:
        numbers = te.compute(ranks.shape, lambda _, expert: expert.astype("int32"), name="numbers")
        return of_rank(numbers, ranks)

    ranked = op.tensor_expr_op(ranks, "expert_ranks", [keys], attrs={"op_pattern": _OPAQUE})
    experts = op.tensor_expr_op(index_of_rank, "highest_experts", [ranked])
    return experts, op.tensor_expr_op(of_rank, "highest_scores", [scores, ranked])


def expert_product(
    x: nn.Tensor,
    experts: nn.Tensor,
    weight: nn.Tensor,
    bias: nn.Tensor | None,
    count: int,
    element: Element,
) -> nn.Tensor:
    """Return `[n, chosen, outputs]`: the products of rows with the matrices of their experts.

    Args:
        x: One row for each chosen expert, `[n, chosen, inputs]`, or one for all, `[n, 1, inputs]`.
        experts: int32 `[n, chosen]`.
        weight: The matrices of all experts, one after the other.
        bias: Their biases `[count * outputs]`, if any.
        count: The number of experts.
        element: Reads `weight`.
    """
    is_shared = int(x.shape[1]) == 1

    def compute(x: te.Tensor, experts: te.Tensor, weight: te.Tensor) -> te.Tensor:
        outputs = weight.shape[0] // count
        column = te.reduce_axis((0, x.shape[2]), "column")

        def product(row: Any, slot: Any, output: Any) -> Any:  # noqa: ANN401 - tvm is untyped.
            value = element(weight, experts[row, slot].astype("int64") * outputs + output, column)
            return te.sum(x[row, 0 if is_shared else slot, column] * value, axis=column)

        return te.compute((*experts.shape, outputs), product, name="expert_product")

    def add_bias(y: te.Tensor, experts: te.Tensor, bias: te.Tensor) -> te.Tensor:
        outputs = y.shape[2]

        def total(row: Any, slot: Any, output: Any) -> Any:  # noqa: ANN401 - tvm is untyped.
            first = experts[row, slot].astype("int64") * outputs
            return y[row, slot, output] + bias[first + output]

        return te.compute(y.shape, total, name="add_expert_bias")

    arguments = [x, experts, weight]
    y = op.tensor_expr_op(compute, "expert_product", arguments, attrs={"op_pattern": _OPAQUE})
    if bias is None:
        return y

    return op.tensor_expr_op(add_bias, "add_expert_bias", [y, experts, bias])
