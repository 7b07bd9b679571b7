"""Recurrent layers, whose states are tensors of the graph's cache argument."""

from __future__ import annotations

__all__ = ("StateConv", "StateGatedDelta")

from collections.abc import Sequence
from typing import Any

from tvm import relax, te, tirx
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn import op

from aiomlc.compiler.backends.tvm.cache_argument import CacheArgument, Tables
from aiomlc.compiler.backends.tvm.grid import Grid
from aiomlc.compiler.backends.tvm.recurrent_kernels import convolution_kernel, delta_kernel
from aiomlc.models.config.layers import GatedDeltaConfig
from aiomlc.models.graph.cached_layers import GatedDelta, ShortConv
from aiomlc.models.graph.module import Module

_UNIT_EPS = 1e-6  # Of the lengths of queries and keys.


class StateConv(Module):
    """A short convolution between two gates."""

    def __init__(self, layer: ShortConv, argument: CacheArgument, grid: Grid) -> None:
        super().__init__()
        self.layer: int = layer.layer
        self.channels: int = layer.channels
        self.weight: nn.Parameter = layer.weight
        self.bias: nn.Parameter | None = layer.bias
        self.argument = argument
        self.grid = grid

    def forward(self, projected: nn.Tensor, kv: Sequence[nn.Tensor]) -> nn.Tensor:
        tables = self.argument.tables(kv)
        b, c, x = op.split(projected, 3, axis=-1)
        (state,) = tables.states[self.layer]
        y = _convolved(op.multiply(b, x), self.weight, state, tables, self.grid)
        if self.bias is not None:
            y = op.add(y, self.bias)
        return op.multiply(c, y)


class StateGatedDelta(Module):
    """A gated delta net with its convolution, norm and output gate."""

    def __init__(self, layer: GatedDelta, argument: CacheArgument, grid: Grid) -> None:
        super().__init__()
        self.layer: int = layer.layer
        self.plan: GatedDeltaConfig = layer.plan
        self.eps: float = layer.eps
        self.conv_weight: nn.Parameter = layer.conv_weight
        self.A_log: nn.Parameter = layer.A_log
        self.dt_bias: nn.Parameter = layer.dt_bias
        self.norm_weight: nn.Parameter = layer.norm_weight
        self.argument = argument
        self.grid = grid

    def forward(self, inputs: nn.Tensor, gates: nn.Tensor, kv: Sequence[nn.Tensor]) -> nn.Tensor:
        plan, tables, n = self.plan, self.argument.tables(kv), inputs.shape[0]
        last_inputs, matrices = tables.states[self.layer]
        mixed, z = op.split(inputs, [plan.channels], axis=-1)
        mixed = op.silu(_convolved(mixed, self.conv_weight, last_inputs, tables, self.grid))
        num_keys = plan.num_key_heads * plan.key_dim
        q, k, v = op.split(mixed, [num_keys, 2 * num_keys], axis=-1)
        heads = (n, plan.num_key_heads, plan.key_dim)
        values = v.reshape(n, plan.num_value_heads, plan.value_dim)
        decays, betas = self._decays_and_betas(gates)
        output, _ = op.tensor_ir_inplace_op(
            delta_kernel(self.grid, plan),
            "update_matrices",
            [
                _unit(q.reshape(*heads), plan.key_dim**-0.5),
                _unit(k.reshape(*heads), 1.0),
                values,
                decays,
                betas,
                *tables.runs,
                matrices,
            ],
            inplace_indices=[-1, 7],
            out=[
                nn.Tensor.placeholder(values.shape, "float32"),
                nn.Tensor.placeholder(matrices.shape, "float32"),
            ],
        )
        normed = op.rms_norm(output, self.norm_weight, axes=[-1], epsilon=self.eps)
        gated = op.multiply(normed, op.silu(z.reshape(*values.shape)))
        return gated.reshape(n, plan.num_values)

    def _decays_and_betas(self, gates: nn.Tensor) -> tuple[nn.Tensor, nn.Tensor]:
        b, a = op.split(gates, 2, axis=-1)
        has_logs = self.plan.rates == "log"

        def decay(a: te.Tensor, bias: te.Tensor, rates: te.Tensor) -> te.Tensor:
            def element(row: Any, head: Any) -> Any:  # noqa: ANN401 - tvm is untyped.
                x = a[row, head] + bias[head]
                softplus = tirx.if_then_else(x > 20.0, x, te.log(1.0 + te.exp(x)))
                rate = -te.exp(rates[head]) if has_logs else rates[head]
                return te.exp(rate * softplus)

            return te.compute(a.shape, element, name="decay")

        return op.tensor_expr_op(decay, "decay", [a, self.dt_bias, self.A_log]), op.sigmoid(b)


def _convolved(
    x: nn.Tensor, weight: nn.Tensor, state: nn.Tensor, tables: Tables, grid: Grid
) -> nn.Tensor:
    """Return the convolution of the last rows of each channel, `[n, channels]`."""
    channels = int(x.shape[1])
    output, _ = op.tensor_ir_inplace_op(
        convolution_kernel(grid, int(weight.shape[0]) // channels, channels),
        "convolve_rows",
        [x, weight, *tables.runs, state],
        inplace_indices=[-1, 4],
        out=[
            nn.Tensor.placeholder(x.shape, "float32"),
            nn.Tensor.placeholder(state.shape, "float32"),
        ],
    )
    return output


def _unit(x: nn.Tensor, length: float) -> nn.Tensor:
    """Return vectors of a length in the direction of those of the last axis."""
    squares = op.sum(op.square(x), axis=-1, keepdims=True)
    eps = nn.Tensor(_expr=relax.const(_UNIT_EPS, "float32"))
    factor = nn.Tensor(_expr=relax.const(length, "float32"))
    return op.multiply(x, op.divide(factor, op.sqrt(op.add(squares, eps))))
