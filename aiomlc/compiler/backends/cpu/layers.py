"""The layers of the CPU backend, each of which calls a native kernel."""

from __future__ import annotations

__all__ = ("LAYERS", "CpuAttention", "CpuEmbedding", "CpuLinear")

from collections.abc import Callable, Mapping
from typing import Any

from tvm import relax
from tvm.relax.frontend import nn

from aiomlc.compiler.backends.cpu.fusion import fuses_feed_forward, fuses_mlp, fuses_norm
from aiomlc.compiler.backends.cpu.kernel_call import (
    KERNEL_PREFIX,
    KernelCall,
    call_kernel,
    call_with_sum,
)
from aiomlc.compiler.backends.cpu.matrix import KernelLayout, matrix_parameter
from aiomlc.models.graph.cached_layers import CacheAttention, GatedDelta, ShortConv, SigmoidGate
from aiomlc.models.graph.layers import (
    Add,
    Embedding,
    GatedMul,
    GatherRows,
    Gelu,
    GeluMul,
    GeluTanhMul,
    LayerNorm,
    Linear,
    QKNorm,
    QKVNorm,
    RMSNorm,
    Scale,
    SiluMul,
    SoftCap,
    SquaredReLU,
)
from aiomlc.models.graph.module import Module
from aiomlc.models.parameters.packed_layout import Layout


class CpuLinear(Module):
    """A matrix product, with or without bias, of inputs that may be reordered before."""

    def __init__(self, layer: Linear, layout: Layout, *, is_ordered: bool = False) -> None:
        super().__init__()
        self.layout: KernelLayout = KernelLayout(layout)
        self.outputs: int = layer.outputs
        self.out_dtype: str = layer.out_dtype
        self.weight: Any = matrix_parameter(layout, layer.inputs)
        self.bias: Any = layer.bias
        self.input_order: Any = nn.Parameter((layer.inputs,), "int32") if is_ordered else None

    @property
    def is_fusible(self) -> bool:
        """Whether the product can be fused with the norm that computes its inputs."""
        return self.input_order is None and fuses_norm(self.layout.layout)

    @property
    def matrix(self) -> list[object]:
        """The arguments of a kernel that describe the matrix."""
        return [self.weight, self.layout]

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        shape = (*x.shape[:-1], self.outputs)
        if self.input_order is not None:
            x = call_kernel("gather_columns", [x, self.input_order], x.shape, x.dtype)
        if self.bias is None:
            return call_kernel("linear", [x, *self.matrix], shape, self.out_dtype)

        inputs = [x, *self.matrix, self.bias]
        return call_kernel("linear_bias", inputs, shape, self.out_dtype)


class CpuEmbedding(Module):
    """An embedding lookup, and the tied output head."""

    def __init__(self, layer: Embedding, layout: Layout) -> None:
        super().__init__()
        self.layout: KernelLayout = KernelLayout(layout)
        self.vocab_size: int = layer.vocab_size
        self.hidden_size: int = layer.hidden_size
        self.weight: Any = matrix_parameter(layout, layer.hidden_size)

    def forward(self, ids: nn.Tensor) -> nn.Tensor:
        shape = (ids.shape[0], self.hidden_size)
        return call_kernel("embed", [ids, self.weight, self.layout], shape, "float32")

    def project(self, x: nn.Tensor) -> nn.Tensor:
        shape = (*x.shape[:-1], self.vocab_size)
        return call_kernel("linear", [x, self.weight, self.layout], shape, "float32")


class CpuRMSNorm(Module):
    """RMS normalization, fused with a sum and with a quantized matrix."""

    def __init__(self, layer: RMSNorm) -> None:
        super().__init__()
        self.eps: float = layer.eps
        self.weight: Any = layer.weight

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return call_kernel("rms_norm", [x, self.weight, self.eps], x.shape, "float32")

    def add(self, x: nn.Tensor, residual: nn.Tensor) -> tuple[nn.Tensor, nn.Tensor]:
        out = relax.TensorType(x.shape, "float32")
        return call_with_sum("add_rms_norm", [x, residual, self.weight, self.eps], out, out)

    def add_linear(
        self, x: nn.Tensor, residual: nn.Tensor, linear: CpuLinear
    ) -> tuple[nn.Tensor, nn.Tensor]:
        if not linear.is_fusible:
            x, total = self.add(x, residual)
            return linear(x), total

        out = relax.TensorType((x.shape[0], linear.outputs), linear.out_dtype)
        inputs = [x, residual, self.weight, self.eps, *linear.matrix]
        name = "add_norm_linear"
        if linear.bias is not None:
            inputs.append(linear.bias)
            name = "add_norm_linear_bias"
        return call_with_sum(name, inputs, out, relax.TensorType(x.shape, "float32"))


class CpuLayerNorm(Module):
    """Layer normalization, fused with a sum."""

    def __init__(self, layer: LayerNorm) -> None:
        super().__init__()
        self.kernel = "layer_norm" if layer.bias is None else "layer_norm_bias"
        self.eps: float = layer.eps
        self.weight: Any = layer.weight
        self.bias: Any = layer.bias

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return call_kernel(self.kernel, [x, *self._settings()], x.shape, "float32")

    def add(self, x: nn.Tensor, residual: nn.Tensor) -> tuple[nn.Tensor, nn.Tensor]:
        out = relax.TensorType(x.shape, "float32")
        inputs = [x, residual, *self._settings()]
        return call_with_sum(f"add_{self.kernel}", inputs, out, out)

    def add_linear(
        self, x: nn.Tensor, residual: nn.Tensor, linear: CpuLinear
    ) -> tuple[nn.Tensor, nn.Tensor]:
        x, total = self.add(x, residual)
        return linear(x), total

    def _settings(self) -> list[object]:
        biases = [] if self.bias is None else [self.bias]
        return [self.weight, *biases, self.eps]


class CpuQKNorm(Module):
    """RMS normalization of queries and keys."""

    def __init__(self, layer: QKNorm) -> None:
        super().__init__()
        self.settings: tuple[float, int, int] = (layer.eps, layer.num_q_heads, layer.num_kv_heads)
        self.out_dtype: str = layer.out_dtype

    def forward(self, qkv: nn.Tensor, q_weight: nn.Tensor, k_weight: nn.Tensor) -> nn.Tensor:
        inputs = [qkv, q_weight, k_weight, *self.settings]
        return call_kernel("qk_norm", inputs, qkv.shape, self.out_dtype)


class CpuQKVNorm(Module):
    """RMS normalization of queries, keys and values."""

    def __init__(self, layer: QKVNorm) -> None:
        super().__init__()
        self.settings: tuple[float, int, int] = (layer.eps, layer.num_q_heads, layer.num_kv_heads)
        self.out_dtype: str = layer.out_dtype

    def forward(self, qkv: nn.Tensor, q_weight: nn.Tensor, k_weight: nn.Tensor) -> nn.Tensor:
        _, num_q_heads, num_kv_heads = self.settings
        shape = (qkv.shape[0], num_q_heads + 2 * num_kv_heads, qkv.shape[2])
        inputs = [qkv, q_weight, k_weight, *self.settings]
        return call_kernel("qkv_norm", inputs, shape, self.out_dtype)


class CpuGatedMul(Module):
    """The activation of a gated MLP, or the whole MLP in one call."""

    def __init__(self, layer: GatedMul) -> None:
        super().__init__()
        self.activation = layer.activation

    def forward(self, gate_up: nn.Tensor) -> nn.Tensor:
        shape = (*gate_up.shape[:-1], int(gate_up.shape[-1]) // 2)
        return call_kernel(f"{self.activation}_mul", [gate_up], shape, "float32")

    def fused_mlp(
        self,
        x: nn.Tensor,
        residual: nn.Tensor,
        norm: CpuRMSNorm | CpuLayerNorm,
        gate_up: CpuLinear,
        down: CpuLinear,
    ) -> tuple[nn.Tensor, nn.Tensor]:
        has_bias = gate_up.bias is not None or down.bias is not None
        is_layer_norm = isinstance(norm, CpuLayerNorm)
        is_fused = gate_up.is_fusible and down.is_fusible
        is_fused = is_fused and fuses_feed_forward(gate_up.layout.layout, down.layout.layout)
        if has_bias or is_layer_norm or not is_fused:
            x, total = norm.add_linear(x, residual, gate_up)
            return down(self.forward(x)), total

        out = relax.TensorType(x.shape, "float32")
        inputs = [x, residual, norm.weight, norm.eps, *gate_up.matrix, *down.matrix]
        return call_with_sum(f"add_norm_feed_forward_{self.activation}", inputs, out, out)


class CpuGelu(Module):
    """GELU, exact or approximated."""

    def __init__(self, layer: Gelu) -> None:
        super().__init__()
        self.kind: str = layer.kind

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return call_kernel(self.kind, [x], x.shape, "float32")

    def fused_mlp(self, x: nn.Tensor, up: CpuLinear, down: CpuLinear) -> nn.Tensor:
        has_biases = up.bias is not None and down.bias is not None
        is_ordered = up.input_order is not None or down.input_order is not None
        if not has_biases or is_ordered or not fuses_mlp(up.layout.layout, down.layout.layout):
            return down(self.forward(up(x)))

        inputs = [x, *up.matrix, up.bias, *down.matrix, down.bias]
        return call_kernel(f"feed_forward_{self.kind}", inputs, x.shape, "float32")


class CpuGatherRows(Module):
    """Row selection."""

    def __init__(self, _: GatherRows) -> None:
        super().__init__()

    def forward(self, x: nn.Tensor, rows: nn.Tensor) -> nn.Tensor:
        size = x.shape[-1]
        gathered = call_kernel(
            "gather_rows",
            [x.reshape(1, x.shape[0], size), rows],
            (1, rows.shape[0], size),
            "float32",
        )
        return gathered.reshape(rows.shape[0], size)


class CpuAttention(Module):
    """Attention with settings that TVM's cache does not support: a window, softcapping, sinks, RoPE
    or heads per layer, or a KV cache of another dtype."""

    def __init__(self, layer: CacheAttention, name: str) -> None:
        super().__init__()
        self.layer = layer
        self.name: str = KERNEL_PREFIX + name

    def forward(
        self, qkv: nn.Tensor, kv: nn.Object, sink_scores: nn.Tensor | None = None
    ) -> nn.Tensor:
        plan = self.layer.plan
        layer = self.layer
        heads = layer.cache_heads
        special = (plan.window, plan.sinks, plan.soft_cap, *layer.rope_slice)
        settings = (*special, int(plan.sees_whole_pieces), *heads)
        tensors = [qkv] if sink_scores is None else [qkv, sink_scores]
        return self.layer.call(self.name, tensors, kv, *settings)


class CpuShortConv(Module):
    """A short convolution."""

    def __init__(self, layer: ShortConv) -> None:
        super().__init__()
        self.layer: int = layer.layer
        self.channels: int = layer.channels
        self.weight: Any = layer.weight
        self.bias: Any = layer.bias

    def forward(self, projected: nn.Tensor, _: nn.Object) -> nn.Tensor:
        shape = (projected.shape[0], self.channels)
        inputs = [self.layer, projected, self.weight]
        if self.bias is None:
            return call_kernel("short_conv", inputs, shape, "float32")

        return call_kernel("short_conv_bias", [*inputs, self.bias], shape, "float32")


class CpuGatedDelta(Module):
    """A gated delta net."""

    def __init__(self, layer: GatedDelta) -> None:
        super().__init__()
        self.layer: int = layer.layer
        plan = layer.plan
        self.settings: tuple[int, int, float, int, int] = (
            plan.num_key_heads,
            plan.key_dim,
            layer.eps,
            int(plan.rates == "log"),
            int(plan.head_order == "tiled"),
        )
        self.num_values: int = layer.plan.num_values
        self.conv_weight: Any = layer.conv_weight
        self.A_log: Any = layer.A_log
        self.dt_bias: Any = layer.dt_bias
        self.norm_weight: Any = layer.norm_weight

    def forward(self, inputs: nn.Tensor, gates: nn.Tensor, _: nn.Object) -> nn.Tensor:
        weights = [self.conv_weight, self.A_log, self.dt_bias, self.norm_weight]
        arguments = [self.layer, inputs, gates, *weights, *self.settings]
        return call_kernel("gated_delta", arguments, (inputs.shape[0], self.num_values), "float32")


class CpuSigmoidGate(Module):
    """The gate of attention outputs."""

    def __init__(self, _: SigmoidGate) -> None:
        super().__init__()

    def without_gate(self, projected: nn.Tensor, size: int) -> nn.Tensor:
        shape = (projected.shape[0], int(projected.shape[1]) - size)
        return call_kernel("drop_gate", [projected, size], shape, projected.dtype)

    def forward(self, x: nn.Tensor, projected: nn.Tensor) -> nn.Tensor:
        return call_kernel("sigmoid_gate", [x, projected], x.shape, "float32")


#: Replacements of the layers of the graph without a matrix.
LAYERS: Mapping[type, Callable[[Any], nn.Module]] = {
    Add: lambda _: KernelCall("add"),
    GatedDelta: CpuGatedDelta,
    GatherRows: CpuGatherRows,
    Gelu: CpuGelu,
    GeluMul: CpuGatedMul,
    GeluTanhMul: CpuGatedMul,
    LayerNorm: CpuLayerNorm,
    QKNorm: CpuQKNorm,
    QKVNorm: CpuQKVNorm,
    RMSNorm: CpuRMSNorm,
    Scale: lambda layer: KernelCall("scale", layer.factor),
    ShortConv: CpuShortConv,
    SigmoidGate: CpuSigmoidGate,
    SiluMul: CpuGatedMul,
    SoftCap: lambda layer: KernelCall("soft_cap", layer.cap),
    SquaredReLU: lambda _: KernelCall("relu_square"),
}
