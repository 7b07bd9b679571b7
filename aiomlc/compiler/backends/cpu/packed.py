"""The layers of encoders on the CPU back end, each of which calls a native kernel."""

from __future__ import annotations

__all__ = ("CpuMeanRows", "CpuPackedAttention", "CpuPickRows")

import numpy as np
from tvm import relax
from tvm.relax.frontend import nn

from aiomlc.compiler.backends.cpu.layers import call_kernel
from aiomlc.models.graph.module import Module
from aiomlc.models.graph.packed import MeanRows, PackedAttention, PackedTokens, PickRows


class CpuPackedAttention(Module):
    """Attention without a KV cache."""

    def __init__(self, layer: PackedAttention) -> None:
        super().__init__()
        plan = layer.plan
        self.plan = plan
        seen = plan.window and plan.window - 1
        self.heads: tuple[int, int, int, int] = (
            plan.num_heads,
            plan.num_kv_heads,
            seen,
            int(layer.is_causal),
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
        inputs += [tokens.positions, rope, *settings]
        return call_kernel("packed_rotary_attention", inputs, shape, "float32")


class CpuPickRows(Module):
    """The first or the last row of each input."""

    def __init__(self, layer: PickRows) -> None:
        super().__init__()
        self.kernel: str = f"{layer.end}_rows"

    def forward(self, x: nn.Tensor, lengths: nn.Tensor) -> nn.Tensor:
        return call_kernel(self.kernel, [x, lengths], (lengths.shape[0], x.shape[1]), "float32")


class CpuMeanRows(Module):
    """The mean of the rows of each input."""

    def __init__(self, _: MeanRows) -> None:
        super().__init__()

    def forward(self, x: nn.Tensor, lengths: nn.Tensor) -> nn.Tensor:
        return call_kernel("mean_rows", [x, lengths], (lengths.shape[0], x.shape[1]), "float32")
