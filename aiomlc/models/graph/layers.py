"""The layers of a model in plain Relax, for which any target can generate code."""

from __future__ import annotations

__all__ = (
    "Add",
    "CacheAttention",
    "Embedding",
    "GatedDelta",
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
    "ShortConv",
    "SigmoidGate",
    "SiluMul",
    "SinkScores",
    "SoftCap",
    "SquaredReLU",
)

from collections.abc import Sequence
from typing import Literal

import numpy as np
from tvm import relax
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn import op

from aiomlc.models.config.activation import Activation
from aiomlc.models.config.layers import AttentionConfig, GatedDeltaConfig, ShortConvConfig
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


class SinkScores(Module):
    """A score for each query head, which joins the denominator of its softmax."""

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        self.weight: nn.Parameter = nn.Parameter((num_heads,), "float32")


class CacheAttention(Module):
    """Attention for fused qkv `[n, heads, d]`; TVM's KV cache rotates, appends and attends.

    Args:
        layer: The index among the layers in the cache.
        plan: What to compute. TVM's cache itself supports no window, no softcapping and no sink
            scores.
        rope_slice: Offset and length of the layer's slice of the `RopeTable`; length 0 is all of
            it, and the only one that TVM's cache itself supports.
        cache_heads: Query heads, key-value heads and head size of the cache, if the layer has
            others; else empty.
        dtype: Of inputs and outputs.
    """

    def __init__(
        self,
        layer: int,
        plan: AttentionConfig,
        rope_slice: tuple[int, int],
        cache_heads: tuple[int, ...],
        *,
        dtype: str,
    ) -> None:
        super().__init__()
        self.layer = layer
        self.plan = plan
        self.rope_slice = rope_slice
        self.cache_heads = cache_heads
        self.dtype = dtype

    @property
    def is_plain(self) -> bool:
        """Whether TVM's own cache attention supports the layer."""
        plan = self.plan
        is_special = plan.window or plan.soft_cap or plan.sink_scores or plan.sees_whole_pieces
        return not (is_special or self.cache_heads or self.rope_slice[1])

    def forward(
        self, qkv: nn.Tensor, kv: nn.Object, sink_scores: nn.Tensor | None = None
    ) -> nn.Tensor:
        if not self.is_plain:
            raise NotImplementedError(
                "windows, softcapping, sink scores and per-layer RoPE are not supported on this "
                "target"
            )

        return self.call("vm.builtin.attention_kv_cache_attention_with_fused_qkv", [qkv], kv)

    def call(
        self, name: str, tensors: Sequence[nn.Tensor], kv: nn.Object, *more: float
    ) -> nn.Tensor:
        """Call a function of the cache with the layer, the scale, `more` arguments and tensors.

        The first tensor is the fused qkv.
        """
        inputs = [self.layer, self.plan.scale, *more]
        shape = (tensors[0].shape[0], self.plan.num_heads, self.plan.head_dim)
        call = relax.call_dps_packed(
            name,
            [
                kv._expr,
                *(relax.prim_value(value) for value in inputs),
                *(tensor._expr for tensor in tensors),
            ],
            out_ty=relax.TensorType(shape, self.dtype),
        )
        return nn.Tensor(_expr=relax.BlockBuilder.current().emit(call))


class ShortConv(Module):
    """`C * conv(B * x)` of `[n, 3 * channels]`, whose columns are B, C and x.

    Args:
        layer: The index among the recurrent layers.
        plan: What to compute.
    """

    def __init__(self, layer: int, plan: ShortConvConfig) -> None:
        super().__init__()
        self.layer = layer
        self.channels: int = plan.channels
        self.weight: nn.Parameter = nn.Parameter((plan.width * plan.channels,), "float32")
        self.bias: nn.Parameter | None = None
        if plan.bias:
            self.bias = nn.Parameter((plan.channels,), "float32")

    def forward(self, projected: nn.Tensor, kv: nn.Object) -> nn.Tensor:
        raise NotImplementedError("recurrent layers are not supported on this target")


class GatedDelta(Module):
    """A gated delta net with its convolution, norm and output gate.

    Args:
        layer: The index among the recurrent layers.
        plan: What to compute.
        eps: Of the norm.
    """

    def __init__(self, layer: int, plan: GatedDeltaConfig, eps: float) -> None:
        super().__init__()
        self.layer = layer
        self.plan = plan
        self.eps = eps
        self.conv_weight: nn.Parameter = nn.Parameter((plan.width * plan.channels,), "float32")
        self.A_log: nn.Parameter = nn.Parameter((plan.num_value_heads,), "float32")
        self.dt_bias: nn.Parameter = nn.Parameter((plan.num_value_heads,), "float32")
        self.norm_weight: nn.Parameter = nn.Parameter((plan.value_dim,), "float32")

    def forward(self, inputs: nn.Tensor, gates: nn.Tensor, kv: nn.Object) -> nn.Tensor:
        """Return `[n, values]`.

        Args:
            inputs: Queries, keys, values and the output gate, `[n, channels + values]`.
            gates: The inputs of rates and decays, `[n, 2 * value heads]`.
            kv: The graph's cache argument.
        """
        raise NotImplementedError("recurrent layers are not supported on this target")


class SigmoidGate(Module):
    """The gate of attention outputs, which a fused matrix computes after the queries."""

    def without_gate(self, projected: nn.Tensor, size: int) -> nn.Tensor:
        """Return the columns without the gate's, which are `size` ones after as many queries."""
        queries, _, others = op.split(projected, [size, 2 * size], axis=-1)
        return op.concat([queries, others], dim=-1)

    def forward(self, x: nn.Tensor, projected: nn.Tensor) -> nn.Tensor:
        """Return `x` `[n, size]`, multiplied by the sigmoid of the gate."""
        size = int(x.shape[-1])
        _, gate, _ = op.split(projected, [size, 2 * size], axis=-1)
        return op.multiply(x.astype("float32"), op.sigmoid(gate.astype("float32")))


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
