"""The layers of a model in plain Relax, for which any target can generate code."""

from __future__ import annotations

__all__ = (
    "Add",
    "Embedding",
    "GatedMul",
    "GatherRows",
    "Gelu",
    "GeluMul",
    "GeluTanhMul",
    "LayerNorm",
    "Linear",
    "Norm",
    "QKNorm",
    "QKVNorm",
    "RMSNorm",
    "Scale",
    "SiluMul",
    "SoftCap",
    "SquaredReLU",
)

from typing import Literal

import numpy as np
from tvm import relax
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn import op

from aiomlc.models.config.activation import Activation
from aiomlc.models.config.layers import AttentionConfig
from aiomlc.models.graph.expert_product import expert_product
from aiomlc.models.graph.module import Module


class Linear(Module):
    """`x @ weight.T + bias`; reads any float type, computes in float32, writes `out_dtype`.

    With `keep_float32`, the weights are float32 in every quantization.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        *,
        bias: bool,
        out_dtype: str,
        keep_float32: bool = False,
    ) -> None:
        super().__init__()
        self.keep_float32: bool = keep_float32
        self.inputs = inputs
        self.outputs = outputs
        self.out_dtype = out_dtype
        self.weight: nn.Parameter = nn.Parameter((outputs, inputs), "float32")
        self.bias: nn.Parameter | None = nn.Parameter((outputs,), "float32") if bias else None

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        y = op.matmul(x.astype("float32"), op.permute_dims(self.weight))
        if self.bias is not None:
            y = op.add(y, self.bias)
        return y.astype(self.out_dtype)

    def of_experts(self, x: nn.Tensor, experts: nn.Tensor, count: int) -> nn.Tensor:
        """Return `expert_product` of the matrices of `count` experts."""
        return expert_product(
            x, experts, self.weight, self.bias, count, lambda w, row, column: w[row, column]
        )


class Embedding(Module):
    """One row per token id; `project` is the tied output head.

    With `keep_float32`, the weights are float32 in every quantization.
    """

    def __init__(self, vocab_size: int, hidden_size: int, *, keep_float32: bool = False) -> None:
        super().__init__()
        self.keep_float32: bool = keep_float32
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.weight: nn.Parameter = nn.Parameter((vocab_size, hidden_size), "float32")

    def forward(self, ids: nn.Tensor) -> nn.Tensor:
        return op.take(self.weight, ids, axis=0)

    def project(self, x: nn.Tensor) -> nn.Tensor:
        return op.matmul(x, op.permute_dims(self.weight))


class Norm(Module):
    """Normalization over the last axis; `add` and `add_linear` fuse it with its neighbors."""

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        raise NotImplementedError

    def add(self, x: nn.Tensor, residual: nn.Tensor) -> tuple[nn.Tensor, nn.Tensor]:
        """Return `norm(x + residual)`, and the sum."""
        total = op.add(x, residual)
        return self.forward(total), total

    def add_linear(
        self, x: nn.Tensor, residual: nn.Tensor, linear: Linear
    ) -> tuple[nn.Tensor, nn.Tensor]:
        """Return `linear(norm(x + residual))`, and the sum."""
        x, total = self.add(x, residual)
        return linear(x), total


class RMSNorm(Norm):
    """Root-mean-square normalization over the last axis, in float32."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight: nn.Parameter = nn.Parameter((size,), "float32")

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return op.rms_norm(x, self.weight, axes=[-1], epsilon=self.eps)


class LayerNorm(Norm):
    """Layer normalization over the last axis, in float32."""

    def __init__(self, size: int, eps: float, *, bias: bool = True) -> None:
        super().__init__()
        self.eps = eps
        self.weight: nn.Parameter = nn.Parameter((size,), "float32")
        self.bias: nn.Parameter | None = nn.Parameter((size,), "float32") if bias else None

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return op.layer_norm(x, x.shape[-1], self.weight, self.bias, eps=self.eps)


class QKNorm(Module):
    """RMS normalization of the query and key heads of fused qkv `[n, heads, d]`.

    Each head is normalized alone. If the weights span all heads, all query heads are normalized at
    once, and so are all key heads.
    """

    def __init__(self, num_q_heads: int, num_kv_heads: int, *, eps: float, out_dtype: str) -> None:
        super().__init__()
        self.num_q_heads = num_q_heads
        self.num_kv_heads = num_kv_heads
        self.eps = eps
        self.out_dtype = out_dtype

    def forward(self, qkv: nn.Tensor, q_weight: nn.Tensor, k_weight: nn.Tensor) -> nn.Tensor:
        if not self.num_kv_heads:
            return self._normalize(qkv, q_weight).astype(self.out_dtype)

        ends = [self.num_q_heads, self.num_q_heads + self.num_kv_heads]
        q, k, v = op.split(qkv, ends, axis=1)
        q, k = self._normalize(q, q_weight), self._normalize(k, k_weight)
        return op.concat([q, k, v], dim=1).astype(self.out_dtype)

    def _normalize(self, x: nn.Tensor, weight: nn.Tensor) -> nn.Tensor:
        rows = x.reshape(x.shape[0], -1, weight.shape[0])
        return op.rms_norm(rows, weight, axes=[-1], epsilon=self.eps).reshape(*x.shape)


class QKVNorm(Module):
    """RMS normalization of each head of fused qkv `[n, heads, d]`; values have no weights.

    With `values_are_keys`, the input has no values: they are the keys before their norm.
    """

    def __init__(self, plan: AttentionConfig, *, eps: float, out_dtype: str) -> None:
        super().__init__()
        self.num_q_heads: int = plan.num_heads
        self.num_kv_heads: int = plan.num_kv_heads
        self.values_are_keys: bool = plan.values_are_keys
        self.eps = eps
        self.out_dtype = out_dtype

    def forward(self, qkv: nn.Tensor, q_weight: nn.Tensor, k_weight: nn.Tensor) -> nn.Tensor:
        q, k = self.num_q_heads, self.num_kv_heads
        ones = nn.Tensor(_expr=relax.const(np.ones(int(qkv.shape[2]), np.float32)))
        parts = op.split(qkv, [q] if self.values_are_keys else [q, q + k], axis=1)
        rows = [(parts[0], q_weight), (parts[1], k_weight), (parts[-1], ones)]
        normed = [op.rms_norm(x, weight, axes=[-1], epsilon=self.eps) for x, weight in rows]
        return op.concat(normed, dim=1).astype(self.out_dtype)


class GatedMul(Module):
    """`activation(gate) * up` of a fused `[n, 2 * size]` tensor, gate first."""

    activation: Activation

    def activate(self, gate: nn.Tensor) -> nn.Tensor:
        """Return the activation of `gate`."""
        raise NotImplementedError

    def forward(self, gate_up: nn.Tensor) -> nn.Tensor:
        gate, up = op.split(gate_up, 2, axis=-1)
        return op.multiply(self.activate(gate), up)

    def fused_mlp(
        self, x: nn.Tensor, residual: nn.Tensor, norm: Norm, gate_up: Linear, down: Linear
    ) -> tuple[nn.Tensor, nn.Tensor]:
        """Return `down(self(gate_up(norm(x + residual))))`, and the sum."""
        x, total = norm.add_linear(x, residual, gate_up)
        return down(self.forward(x)), total


class SiluMul(GatedMul):
    """`silu(gate) * up`."""

    activation: Activation = "silu"

    def activate(self, gate: nn.Tensor) -> nn.Tensor:
        return op.silu(gate)


class GeluMul(GatedMul):
    """`gelu(gate) * up`, exact."""

    activation: Activation = "gelu"

    def activate(self, gate: nn.Tensor) -> nn.Tensor:
        return op.gelu(gate)


class GeluTanhMul(GatedMul):
    """`gelu(gate) * up`, with the tanh approximation of GELU."""

    activation: Activation = "gelu_tanh"

    def activate(self, gate: nn.Tensor) -> nn.Tensor:
        return op.gelu(gate, approximate="tanh")


class Scale(Module):
    """Multiplication of every element by a factor."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return op.multiply(x, nn.Tensor(_expr=relax.const(self.factor, "float32")))


class Gelu(Module):
    """GELU: the exact function, its tanh approximation, or that of CLIP."""

    def __init__(self, kind: Literal["gelu", "gelu_tanh", "quick_gelu"] = "gelu") -> None:
        super().__init__()
        self.kind = kind

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        if self.kind == "quick_gelu":
            factor = nn.Tensor(_expr=relax.const(1.702, "float32"))
            return op.multiply(x, op.sigmoid(op.multiply(x, factor)))

        return op.gelu(x, approximate="tanh" if self.kind == "gelu_tanh" else None)

    def fused_mlp(self, x: nn.Tensor, up: Linear, down: Linear) -> nn.Tensor:
        """Return `down(self(up(x)))`."""
        return down(self.forward(up(x)))


class SquaredReLU(Module):
    """`max(x, 0) ** 2`."""

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return op.square(op.relu(x))


class Add(Module):
    """The sum of two tensors of the same shape."""

    def forward(self, a: nn.Tensor, b: nn.Tensor) -> nn.Tensor:
        return op.add(a, b)


class SoftCap(Module):
    """Softcapping: `cap * tanh(x / cap)` of every element."""

    def __init__(self, cap: float) -> None:
        super().__init__()
        self.cap = cap

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        cap = nn.Tensor(_expr=relax.const(self.cap, "float32"))
        return op.multiply(op.tanh(op.divide(x, cap)), cap)


class GatherRows(Module):
    """Rows of `[n, size]` by index."""

    def forward(self, x: nn.Tensor, rows: nn.Tensor) -> nn.Tensor:
        return op.take(x, rows, axis=0)
