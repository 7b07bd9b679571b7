"""The CPU's layers: each one is a call of one of our kernels, so TVM generates no code.

TVM keeps the graph, the virtual machine and the paged KV cache.
"""

from __future__ import annotations

__all__ = ("call_kernel", "cpu_cache_factory", "lower_to_cpu")

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import tvm
from tvm import relax
from tvm.relax.frontend import nn

from aiomlc.compiler.kv_cache import KVCache
from aiomlc.compiler.quantization import (
    MatrixFormat,
    Quantization,
    fuses_feed_forward,
    packed_bytes,
)
from aiomlc.models.config.decoder import DecoderConfig
from aiomlc.models.graph.decoder import CreateCache, Decoder
from aiomlc.models.graph.encoder import Encoder
from aiomlc.models.graph.layers import (
    Add,
    CacheAttention,
    Embedding,
    GatedMul,
    GatherRows,
    Gelu,
    GeluTanhMul,
    LayerNorm,
    Linear,
    QKNorm,
    RMSNorm,
    Scale,
    SiluMul,
    SoftCap,
    SquaredReLU,
)
from aiomlc.models.graph.module import Mutator
from aiomlc.models.graph.moe import MoE
from aiomlc.models.graph.rope_tables import rotations_of

Graph = TypeVar("Graph", Decoder, Encoder)

_KERNELS = "aiomlc.cpu."
_ROPE_NORMAL = 1  # TVM's RopeMode: rotate before a key enters the cache.
_ATTENTION_MHA = 0  # TVM's AttnKind.
_LAYER_SLIDING_WINDOW = 1024  # TVM wants a number, for layers of a kind that we do not have.


def call_kernel(name: str, inputs: Sequence[object], shape: Sequence[Any], dtype: str) -> nn.Tensor:
    """Call a kernel that has one output."""
    out = relax.TensorType(tuple(shape), dtype)
    call = relax.call_dps_packed(_KERNELS + name, [_expr(x) for x in inputs], out_ty=out)
    return nn.Tensor(_expr=relax.BlockBuilder.current().emit(call))


def _call_with_sum(
    name: str, inputs: Sequence[object], out: relax.TensorType, total: relax.TensorType
) -> tuple[nn.Tensor, nn.Tensor]:
    """Call a kernel that also gives the sum which it normalised."""
    exprs = [_expr(value) for value in inputs]
    call = relax.call_dps_packed(_KERNELS + name, exprs, out_ty=[out, total])
    builder = relax.BlockBuilder.current()
    both = builder.emit(call)
    fields = [builder.emit(relax.TupleGetItem(both, i)) for i in (0, 1)]
    return nn.Tensor(_expr=fields[0]), nn.Tensor(_expr=fields[1])


def _expr(value: object) -> Any:  # noqa: ANN401 - tvm is untyped.
    if isinstance(value, nn.Tensor):
        return value._expr

    return relax.prim_value(value)


class _CpuLinear(nn.Module):  # type: ignore[misc]
    def __init__(self, layer: Linear, quantization: Quantization) -> None:
        super().__init__()
        self.format: MatrixFormat = "f32" if layer.exact else quantization.matrix_format
        self.outputs = layer.outputs
        self.out_dtype = layer.out_dtype
        size = packed_bytes(self.format, layer.outputs, layer.inputs)
        self.weight = nn.Parameter((size,), "uint8")
        self.bias = layer.bias

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        shape = (*x.shape[:-1], self.outputs)
        if self.bias is None:
            return call_kernel(f"linear_{self.format}", [x, self.weight], shape, self.out_dtype)

        inputs = [x, self.weight, self.bias]
        return call_kernel(f"linear_bias_{self.format}", inputs, shape, self.out_dtype)


class _CpuEmbedding(nn.Module):  # type: ignore[misc]
    def __init__(self, layer: Embedding, quantization: Quantization) -> None:
        super().__init__()
        self.format = quantization.matrix_format
        self.vocab_size = layer.vocab_size
        self.hidden_size = layer.hidden_size
        size = packed_bytes(self.format, layer.vocab_size, layer.hidden_size)
        self.weight = nn.Parameter((size,), "uint8")

    def forward(self, ids: nn.Tensor) -> nn.Tensor:
        shape = (ids.shape[0], self.hidden_size)
        return call_kernel(f"embed_{self.format}", [ids, self.weight], shape, "float32")

    def project(self, x: nn.Tensor) -> nn.Tensor:
        shape = (*x.shape[:-1], self.vocab_size)
        return call_kernel(f"linear_{self.format}", [x, self.weight], shape, "float32")


class _CpuRMSNorm(nn.Module):  # type: ignore[misc]
    def __init__(self, layer: RMSNorm) -> None:
        super().__init__()
        self.eps = layer.eps
        self.weight = layer.weight

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return call_kernel("rms_norm", [x, self.weight, self.eps], x.shape, "float32")

    def add(self, x: nn.Tensor, residual: nn.Tensor) -> tuple[nn.Tensor, nn.Tensor]:
        out = relax.TensorType(x.shape, "float32")
        return _call_with_sum("add_rms_norm", [x, residual, self.weight, self.eps], out, out)

    def add_linear(
        self, x: nn.Tensor, residual: nn.Tensor, linear: _CpuLinear
    ) -> tuple[nn.Tensor, nn.Tensor]:
        if linear.format != "q4":
            x, total = self.add(x, residual)
            return linear(x), total

        out = relax.TensorType((x.shape[0], linear.outputs), linear.out_dtype)
        inputs = [x, residual, self.weight, self.eps, linear.weight]
        name = "add_norm_linear_q4"
        if linear.bias is not None:
            inputs.append(linear.bias)
            name = "add_norm_linear_bias_q4"
        return _call_with_sum(name, inputs, out, relax.TensorType(x.shape, "float32"))


class _CpuLayerNorm(nn.Module):  # type: ignore[misc]
    def __init__(self, layer: LayerNorm) -> None:
        super().__init__()
        self.kernel = "layer_norm" if layer.bias is None else "layer_norm_bias"
        self.eps = layer.eps
        self.weight = layer.weight
        self.bias = layer.bias

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return call_kernel(self.kernel, [x, *self._settings()], x.shape, "float32")

    def add(self, x: nn.Tensor, residual: nn.Tensor) -> tuple[nn.Tensor, nn.Tensor]:
        out = relax.TensorType(x.shape, "float32")
        inputs = [x, residual, *self._settings()]
        return _call_with_sum(f"add_{self.kernel}", inputs, out, out)

    def add_linear(
        self, x: nn.Tensor, residual: nn.Tensor, linear: _CpuLinear
    ) -> tuple[nn.Tensor, nn.Tensor]:
        x, total = self.add(x, residual)
        return linear(x), total

    def _settings(self) -> list[object]:
        biases = [] if self.bias is None else [self.bias]
        return [self.weight, *biases, self.eps]


class _CpuQKNorm(nn.Module):  # type: ignore[misc]
    def __init__(self, layer: QKNorm) -> None:
        super().__init__()
        self.settings = (layer.eps, layer.num_q_heads, layer.num_kv_heads)
        self.out_dtype = layer.out_dtype

    def forward(self, qkv: nn.Tensor, q_weight: nn.Tensor, k_weight: nn.Tensor) -> nn.Tensor:
        inputs = [qkv, q_weight, k_weight, *self.settings]
        return call_kernel("qk_norm", inputs, qkv.shape, self.out_dtype)


class _CpuGatedMul(nn.Module):  # type: ignore[misc]
    def __init__(self, layer: GatedMul) -> None:
        super().__init__()
        self.activation = layer.activation

    def forward(self, gate_up: nn.Tensor) -> nn.Tensor:
        shape = (*gate_up.shape[:-1], int(gate_up.shape[-1]) // 2)
        return call_kernel(f"{self.activation}_mul", [gate_up], shape, "float32")

    def between(
        self,
        x: nn.Tensor,
        residual: nn.Tensor,
        norm: _CpuRMSNorm | _CpuLayerNorm,
        gate_up: _CpuLinear,
        down: _CpuLinear,
    ) -> tuple[nn.Tensor, nn.Tensor]:
        inner = gate_up.outputs // 2
        biased = gate_up.bias is not None or down.bias is not None
        layer_norm = isinstance(norm, _CpuLayerNorm)
        if biased or layer_norm or not fuses_feed_forward(gate_up.format, inner):
            x, total = norm.add_linear(x, residual, gate_up)
            return down(self.forward(x)), total

        out = relax.TensorType(x.shape, "float32")
        inputs = [x, residual, norm.weight, norm.eps, gate_up.weight, inner, down.weight]
        return _call_with_sum(f"add_norm_feed_forward_{self.activation}_q4", inputs, out, out)


class _CpuScale(nn.Module):  # type: ignore[misc]
    def __init__(self, layer: Scale) -> None:
        super().__init__()
        self.factor = layer.factor

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return call_kernel("scale", [x, self.factor], x.shape, "float32")


class _CpuGelu(nn.Module):  # type: ignore[misc]
    def __init__(self, layer: Gelu) -> None:
        super().__init__()
        self.kind = layer.kind

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return call_kernel(self.kind, [x], x.shape, "float32")


class _CpuSquaredReLU(nn.Module):  # type: ignore[misc]
    def __init__(self, _: SquaredReLU) -> None:
        super().__init__()

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return call_kernel("relu_square", [x], x.shape, "float32")


class _CpuAdd(nn.Module):  # type: ignore[misc]
    def __init__(self, _: Add) -> None:
        super().__init__()

    def forward(self, a: nn.Tensor, b: nn.Tensor) -> nn.Tensor:
        return call_kernel("add", [a, b], a.shape, "float32")


class _CpuMoE(nn.Module):  # type: ignore[misc]
    def __init__(self, layer: MoE) -> None:
        super().__init__()
        self.inner = layer.inner
        self.choice = (layer.per_token, int(layer.normalize))

    def forward(
        self,
        x: nn.Tensor,
        router: _CpuLinear,
        gate_up: _CpuLinear,
        down: _CpuLinear,
        shared: tuple[nn.Tensor, nn.Tensor] | None,
    ) -> nn.Tensor:
        inputs = [x, router(x), gate_up.weight, self.inner, down.weight, *self.choice]
        name = "mix_experts" if shared is None else "mix_experts_shared"
        inputs += shared or ()
        return call_kernel(f"{name}_{gate_up.format}", inputs, x.shape, "float32")


class _CpuSoftCap(nn.Module):  # type: ignore[misc]
    def __init__(self, layer: SoftCap) -> None:
        super().__init__()
        self.cap = layer.cap

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return call_kernel("soft_cap", [x, self.cap], x.shape, "float32")


class _CpuGatherRows(nn.Module):  # type: ignore[misc]
    def __init__(self, _: GatherRows) -> None:
        super().__init__()

    def forward(self, x: nn.Tensor, rows: nn.Tensor) -> nn.Tensor:
        size = x.shape[-1]
        taken = call_kernel(
            "take_rows", [x.reshape(1, x.shape[0], size), rows], (1, rows.shape[0], size), "float32"
        )
        return taken.reshape(rows.shape[0], size)


class _CpuAttention(nn.Module):  # type: ignore[misc]
    """Attention with what the cache does not know of: a window, a soft cap, a rotation of the
    layer's own, or 8 bits."""

    def __init__(self, layer: CacheAttention, name: str) -> None:
        super().__init__()
        self.layer = layer
        self.name = _KERNELS + name

    def forward(self, qkv: nn.Tensor, kv: nn.Object) -> nn.Tensor:
        how = self.layer.how
        more = (how.window, how.sinks, how.soft_cap, *how.rotation)
        return self.layer.call(self.name, qkv, kv, *more)


#: What takes the place of layers without matrices of their own.
_KERNEL_OF: Mapping[type, Callable[[Any], nn.Module]] = {
    RMSNorm: _CpuRMSNorm,
    LayerNorm: _CpuLayerNorm,
    QKNorm: _CpuQKNorm,
    SiluMul: _CpuGatedMul,
    GeluTanhMul: _CpuGatedMul,
    Gelu: _CpuGelu,
    SquaredReLU: _CpuSquaredReLU,
    Scale: _CpuScale,
    SoftCap: _CpuSoftCap,
    Add: _CpuAdd,
    MoE: _CpuMoE,
    GatherRows: _CpuGatherRows,
}


class _CpuLowering(Mutator):
    def __init__(self, quantization: Quantization, cache: KVCache | None) -> None:
        super().__init__()
        self.quantization = quantization
        self.cache = cache

    def visit_module(self, name: str, node: nn.Module) -> nn.Module:
        match node:
            case Linear():
                return _CpuLinear(node, self.quantization)
            case Embedding():
                return _CpuEmbedding(node, self.quantization)
            case CacheAttention():
                return self._attention(node)

        kernel = _KERNEL_OF.get(type(node))
        return super().visit_module(name, node) if kernel is None else kernel(node)

    def _attention(self, layer: CacheAttention) -> nn.Module:
        if self.cache is not None and self.cache.is_8_bit:
            return _CpuAttention(layer, "kv_int8_attention")

        return layer if layer.how.is_plain else _CpuAttention(layer, "kv_layer_attention")


def lower_to_cpu(graph: Graph, quantization: Quantization, cache: KVCache | None = None) -> Graph:
    """Replace every layer by its kernel, and every matrix by its packed bytes."""
    lowered: Graph = _CpuLowering(quantization, cache).visit("", graph)
    return lowered


def cpu_cache_factory(config: DecoderConfig, cache: KVCache) -> CreateCache:
    """Make TVM's paged KV cache over our kernels."""

    def create(sizes: Sequence[Any]) -> nn.Object:
        call = relax.call_pure_packed(
            "vm.builtin.paged_attention_kv_cache_create",
            *_cache_shape(config, cache, sizes),
            *_rope(config),
            relax.const(np.zeros((), cache.dtype)),
            *_cache_functions(),
            ty_args=relax.AnyType(),
        )
        return nn.Object(_expr=call, _name="kv_cache")

    return create


def _cache_shape(config: DecoderConfig, cache: KVCache, sizes: Sequence[Any]) -> list[Any]:
    row_size = cache.row_size(config.head_dim)
    return [
        relax.ShapeExpr([*sizes, _LAYER_SLIDING_WINDOW]),
        relax.ShapeExpr([0, config.num_hidden_layers]),  # One stage of a pipeline.
        relax.prim_value(config.num_attention_heads),
        relax.prim_value(config.num_key_value_heads),
        relax.prim_value(row_size),
        relax.prim_value(row_size),
        relax.ShapeExpr([_ATTENTION_MHA] * config.num_hidden_layers),
        relax.prim_value(False),  # No disaggregation.
    ]


def _rope(config: DecoderConfig) -> list[Any]:
    # The cache hands its "extension factors" to the rotation as they are. Ours are the inverse
    # frequencies themselves, with every kind of scaling already in them, and behind them what
    # cosines and sines are multiplied by. A layer that has only a part of them says so itself.
    numbers = np.array(rotations_of(config).numbers, np.float32)
    scale, theta = relax.prim_value(1.0), relax.prim_value(config.rope.theta)
    return [relax.prim_value(_ROPE_NORMAL), scale, theta, relax.const(numbers)]


def _cache_functions() -> list[Any]:
    """In the order of TVM's constructor; the kinds of attention we do not have raise."""

    def attention(name: str) -> Any:  # noqa: ANN401 - tvm is untyped.
        return relax.Tuple([tvm.ir.StringImm("tirx"), relax.ExternFunc(_KERNELS + name)])

    def function(name: str) -> Any:  # noqa: ANN401 - tvm is untyped.
        return relax.ExternFunc(_KERNELS + name)

    unsupported = "attention_unsupported"
    return [
        function("kv_append"),
        function(unsupported),  # Appending to a latent (MLA) cache.
        attention("attention_ragged"),
        attention("attention_prefill"),
        attention("attention_decode"),
        attention(unsupported),  # Prefill with a sliding window.
        attention(unsupported),  # Decode with a sliding window.
        attention(unsupported),  # A token tree over the cache.
        attention(unsupported),  # A token tree.
        relax.Tuple([]),  # Latent attention.
        relax.Tuple([function("attention_merge")]),
        function("kv_split_rotary"),
        function("kv_copy_page"),
        function("kv_debug_get"),
        function("kv_compact_copy"),
    ]
