"""The layers of encoders on the CPU back end, each of which calls a native kernel."""

from __future__ import annotations

__all__ = (
    "PACKED_LAYERS",
    "CpuAlibiAttention",
    "CpuBiasedAttention",
    "CpuDisentangledAttention",
    "CpuPackedAttention",
)

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from tvm import relax
from tvm.relax.frontend import nn

from aiomlc.compiler.backends.cpu.kernel_call import KernelCall, RowsCall, call_kernel
from aiomlc.models.config.layers import AttentionConfig
from aiomlc.models.graph.module import Module
from aiomlc.models.graph.packed import (
    AlibiAttention,
    BiasedAttention,
    DisentangledAttention,
    MeanRows,
    MergeRows,
    PackedAttention,
    PackedTokens,
    PickRows,
    PoolRows,
    PositionTiles,
    Relu,
    Standardize,
    UnitNorm,
    WeighRows,
)
from aiomlc.models.parameters.packed_layout import TILE_ROWS

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Query heads, key heads, window, causality and rounding.
_Heads: TypeAlias = tuple[int, int, int, int, int]
_PAIRED_ELEMENTS = 16  # What the elements of a head in bfloat16 are a multiple of.


class CpuPackedAttention(Module):
    """Attention without a KV cache.

    Args:
        layer: What to compute.
        rounds: Whether to round what is multiplied to bfloat16, as with a KV cache of that type, if
            the heads have a multiple of 16 elements.
    """

    def __init__(self, layer: PackedAttention, *, rounds: bool) -> None:
        super().__init__()
        plan = layer.plan
        self.plan = plan
        seen = plan.window and plan.window - 1
        self.heads: _Heads = (
            plan.num_heads,
            plan.num_kv_heads,
            seen,
            int(layer.is_causal),
            _rounding(plan, rounds),
        )

    def forward(
        self, qkv: nn.Tensor, tokens: PackedTokens, sink_scores: nn.Tensor | None = None
    ) -> nn.Tensor:
        plan = self.plan
        if plan.sinks or sink_scores is not None:
            raise NotImplementedError("attention sinks are not supported without a KV cache")

        n = qkv.shape[0]
        shape = (n, plan.num_heads * plan.head_dim)
        inputs: list[object] = [qkv.reshape(n, -1), tokens.lengths]
        settings = [relax.ShapeExpr(self.heads), plan.scale, plan.soft_cap]
        if plan.rope is None:
            return call_kernel("packed_attention", [*inputs, *settings], shape, "float32")

        table = (*plan.rope.inverse_frequencies(plan.head_dim), plan.rope.attention_factor)
        rope = nn.Tensor(_expr=relax.const(np.array(table, np.float32)))
        inputs += [tokens.positions, rope]
        if axes := plan.rope.axes(plan.head_dim):
            inputs.append(nn.Tensor(_expr=relax.const(np.array(axes, np.int32))))
            return call_kernel("packed_axial_attention", [*inputs, *settings], shape, "float32")

        inputs += settings
        return call_kernel("packed_rotary_attention", inputs, shape, "float32")


class CpuBiasedAttention(Module):
    """Attention without a KV cache, with biases by distance.

    Args:
        layer: What to compute.
        rounds: As of `CpuPackedAttention`.
    """

    def __init__(self, layer: BiasedAttention, *, rounds: bool) -> None:
        super().__init__()
        self.plan: AttentionConfig = layer.plan
        self.heads: _Heads = _whole_heads(layer.plan, rounds)

    def forward(self, qkv: nn.Tensor, tokens: PackedTokens) -> nn.Tensor:
        assert tokens.biases is not None, "the graph computes them for such layers"
        return _attend_with("packed_biased_attention", self, qkv, tokens, tokens.biases)


class CpuAlibiAttention(Module):
    """Attention without a KV cache, with a slope for each head.

    Args:
        layer: What to compute.
        rounds: As of `CpuPackedAttention`.
    """

    def __init__(self, layer: AlibiAttention, *, rounds: bool) -> None:
        super().__init__()
        self.plan: AttentionConfig = layer.plan
        self.heads: _Heads = _whole_heads(layer.plan, rounds)
        self.slopes: tuple[float, ...] = layer.slopes

    def forward(self, qkv: nn.Tensor, tokens: PackedTokens) -> nn.Tensor:
        slopes = nn.Tensor(_expr=relax.const(np.array(self.slopes, np.float32)))
        return _attend_with("packed_alibi_attention", self, qkv, tokens, slopes)


class CpuPositionTiles(Module):
    """The tiles of relative positions."""

    def __init__(self, layer: PositionTiles) -> None:
        super().__init__()
        self.plan: AttentionConfig = layer.plan

    def forward(self, layers: Sequence[nn.Tensor]) -> nn.Tensor:
        plan = self.plan
        tiles = -(-int(layers[0].shape[0]) // TILE_ROWS)
        shape = (len(layers), 2, plan.num_heads, tiles, plan.head_dim, TILE_ROWS)
        return call_kernel("position_tiles", [*layers, plan.num_heads], shape, "float32")


class CpuDisentangledAttention(Module):
    """Attention without a KV cache, with products with relative positions.

    Args:
        layer: What to compute.
        rounds: As of `CpuPackedAttention`; products with relative positions are float32.
    """

    def __init__(self, layer: DisentangledAttention, *, rounds: bool) -> None:
        super().__init__()
        self.plan: AttentionConfig = layer.plan
        self.heads: _Heads = _whole_heads(layer.plan, rounds)
        self.layer: int = layer.layer
        self.relative: NDArray[np.int32] = layer.relative

    def forward(self, qkv: nn.Tensor, tokens: PackedTokens) -> nn.Tensor:
        assert tokens.position_tiles is not None, "an argument of the graphs of such layers"
        n, plan = qkv.shape[0], self.plan
        relative = nn.Tensor(_expr=relax.const(self.relative))
        inputs = [qkv.reshape(n, -1), tokens.lengths, tokens.position_tiles, relative]
        settings = [self.layer, relax.ShapeExpr(self.heads), plan.scale]
        shape = (n, plan.num_heads * plan.head_dim)
        return call_kernel("packed_disentangled_attention", [*inputs, *settings], shape, "float32")


def _rounding(plan: AttentionConfig, rounds: bool) -> int:
    return int(rounds and plan.head_dim % _PAIRED_ELEMENTS == 0)


def _whole_heads(plan: AttentionConfig, rounds: bool) -> _Heads:
    """Return the numbers of attention whose rows see their whole sequence."""
    return plan.num_heads, plan.num_kv_heads, 0, 0, _rounding(plan, rounds)


def _attend_with(
    kernel: str,
    layer: CpuBiasedAttention | CpuAlibiAttention,
    qkv: nn.Tensor,
    tokens: PackedTokens,
    biases: nn.Tensor,
) -> nn.Tensor:
    n, plan = qkv.shape[0], layer.plan
    settings = [relax.ShapeExpr(layer.heads), plan.scale, plan.soft_cap]
    inputs = [qkv.reshape(n, -1), tokens.lengths, biases, *settings]
    return call_kernel(kernel, inputs, (n, plan.num_heads * plan.head_dim), "float32")


class CpuMergeRows(Module):
    """Joined rows."""

    def __init__(self, _: MergeRows) -> None:
        super().__init__()

    def forward(self, x: nn.Tensor, order: nn.Tensor) -> nn.Tensor:
        shape = (order.shape[0], int(order.shape[1]) * int(x.shape[1]))
        return call_kernel("merge_rows", [x, order], shape, "float32")


class CpuStandardize(Module):
    """Standardization of columns."""

    def __init__(self, layer: Standardize) -> None:
        super().__init__()
        self.bias: Any = layer.bias
        self.scale: Any = layer.scale

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return call_kernel("standardize", [x, self.bias, self.scale], x.shape, "float32")


class CpuUnitNorm(Module):
    """RMSNorm with weights of 1."""

    def __init__(self, layer: UnitNorm) -> None:
        super().__init__()
        self.size: int = layer.size
        self.eps: float = layer.eps

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        ones = nn.Tensor(_expr=relax.const(np.ones(self.size, np.float32)))
        return call_kernel("rms_norm", [x, ones, self.eps], x.shape, "float32")


#: Replacements of the layers of the graph that do not attend.
PACKED_LAYERS: Mapping[type, Callable[[Any], nn.Module]] = {
    MeanRows: lambda _: RowsCall("mean_rows"),
    MergeRows: CpuMergeRows,
    PickRows: lambda layer: RowsCall(f"{layer.end}_rows"),
    PoolRows: lambda _: RowsCall("pool_rows"),
    PositionTiles: CpuPositionTiles,
    Relu: lambda _: KernelCall("relu"),
    Standardize: CpuStandardize,
    UnitNorm: CpuUnitNorm,
    WeighRows: lambda _: RowsCall("weigh_rows"),
}
