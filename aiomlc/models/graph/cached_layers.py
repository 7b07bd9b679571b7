"""The layers that read and write the state of a sequence: keys and values, or a recurrent one."""

from __future__ import annotations

__all__ = ("CacheAttention", "GatedDelta", "ShortConv", "SigmoidGate", "SinkScores")

from collections.abc import Sequence

from tvm import relax
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn import op

from aiomlc.models.config.layers import AttentionConfig, GatedDeltaConfig, ShortConvConfig
from aiomlc.models.graph.module import Module


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
