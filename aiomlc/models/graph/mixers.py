"""The layers through which the tokens of a sequence see each other."""

from __future__ import annotations

__all__ = ("Mixer", "build_mixer")

from tvm.relax.frontend import nn

from aiomlc.models.config.decoder import DecoderConfig
from aiomlc.models.config.layers import AttentionConfig, GatedDeltaConfig, ShortConvConfig
from aiomlc.models.graph.cached_layers import (
    CacheAttention,
    GatedDelta,
    ShortConv,
    SigmoidGate,
    SinkScores,
)
from aiomlc.models.graph.columns import ConcatColumns
from aiomlc.models.graph.layers import Linear, Norm, QKNorm, QKVNorm, RMSNorm
from aiomlc.models.graph.module import Module
from aiomlc.models.graph.rope_table import rope_table
from aiomlc.models.graph.step import Step


class Mixer(Module):
    """A layer through which tokens see each other, from normed hidden states `[n, hidden]`."""

    @property
    def input(self) -> Linear:
        """The matrix that reads the hidden states."""
        raise NotImplementedError

    def forward(self, x: nn.Tensor, step: Step) -> nn.Tensor:
        """Return the layer's output for `x`."""
        return self.mix(self.input(x), step)

    def add_norm(
        self, update: nn.Tensor, residual: nn.Tensor, norm: Norm, step: Step
    ) -> tuple[nn.Tensor, nn.Tensor]:
        """Return the layer's output for `norm(update + residual)`, and that sum."""
        projected, residual = norm.add_linear(update, residual, self.input)
        return self.mix(projected, step), residual

    def mix(self, projected: nn.Tensor, step: Step) -> nn.Tensor:
        """Return the layer's output for the product with `self.input`."""
        raise NotImplementedError


class Attention(Mixer):
    """Attention over the keys and values in the KV cache."""

    def __init__(
        self, config: DecoderConfig, plan: AttentionConfig, layer: int, kv_dtype: str
    ) -> None:
        super().__init__()
        self.plan: AttentionConfig = plan
        self.layer: int = layer
        self.num_fused_heads: int = plan.num_heads + 2 * plan.num_kv_heads
        self.qkv_name: str = config.checkpoint.qkv_name
        has_norm = plan.qk_norm != "none"
        qkv_dtype = "float32" if has_norm else kv_dtype
        size = plan.num_projected_heads * plan.head_dim
        qkv = Linear(config.hidden_size, size, bias=plan.qkv_bias, out_dtype=qkv_dtype)
        setattr(self, self.qkv_name, qkv)
        self.qk_norm: QKNorm | QKVNorm | None = None
        if has_norm:
            self._add_qk_norm(plan, config.norm_eps, kv_dtype)
        self.gate: SigmoidGate | None = SigmoidGate() if plan.output_gate else None
        self.o_proj: Linear = Linear(
            plan.num_heads * plan.head_dim,
            config.hidden_size,
            bias=plan.output_bias,
            out_dtype="float32",
        )
        self.sinks: SinkScores | None = SinkScores(plan.num_heads) if plan.sink_scores else None
        self.concat: ConcatColumns = ConcatColumns()
        index = config.cache_index(layer)
        rope_slice = rope_table(config).layer_slices[index]
        heads = () if config.has_equal_heads else config.cache_shape[1:]
        self.attend: Module = CacheAttention(index, plan, rope_slice, heads, dtype=kv_dtype)

    def _add_qk_norm(self, plan: AttentionConfig, eps: float, kv_dtype: str) -> None:
        is_full_width = plan.qk_norm == "full_width"
        q_heads, k_heads = (plan.num_heads, plan.num_kv_heads) if is_full_width else (1, 1)
        self.q_norm: RMSNorm = RMSNorm(plan.head_dim * q_heads, eps)
        if plan.kv_source is not None:
            self.qk_norm = QKNorm(plan.num_heads, 0, eps=eps, out_dtype=kv_dtype)
            return

        self.k_norm: RMSNorm = RMSNorm(plan.head_dim * k_heads, eps)
        if plan.value_norm:
            self.qk_norm = QKVNorm(plan, eps=eps, out_dtype=kv_dtype)
        else:
            self.qk_norm = QKNorm(plan.num_heads, plan.num_kv_heads, eps=eps, out_dtype=kv_dtype)

    @property
    def input(self) -> Linear:
        """The fused QKV matrix, whose attribute has MLC's name for it."""
        qkv: Linear = getattr(self, self.qkv_name)
        return qkv

    def mix(self, projected: nn.Tensor, step: Step) -> nn.Tensor:
        n, heads, head_dim = projected.shape[0], self.plan.num_heads, self.plan.head_dim
        qkv = projected
        if self.gate is not None:
            qkv = self.gate.without_gate(projected, heads * head_dim)
        qkv = qkv.reshape(n, -1, head_dim)
        if self.qk_norm is not None:
            k_norm = self.q_norm if self.plan.kv_source is not None else self.k_norm
            qkv = self.qk_norm(qkv, self.q_norm.weight, k_norm.weight)
        if self.plan.kv_source is None:
            step.qkv[self.layer] = qkv
        else:
            qkv = self._with_keys_of(step.qkv[self.plan.kv_source], qkv)
        sink_scores = None if self.sinks is None else self.sinks.weight
        attended = self.attend(qkv, step.kv, sink_scores).reshape(n, heads * head_dim)
        if self.gate is not None:
            attended = self.gate(attended, projected)
        return self.o_proj(attended)

    def _with_keys_of(self, source: nn.Tensor, queries: nn.Tensor) -> nn.Tensor:
        """Return the queries with the keys and values of another layer.

        The cache rotates and stores these again, with the same bits.
        """
        n, head_dim = queries.shape[0], self.plan.head_dim
        size = 2 * self.plan.num_kv_heads * head_dim
        width = int(source.shape[1]) * head_dim
        rows = queries.reshape(n, self.plan.num_heads * head_dim)
        fused = self.concat(rows, source.reshape(n, width), width - size, size)
        return fused.reshape(n, self.num_fused_heads, head_dim)


class ShortConvMixer(Mixer):
    """A short convolution between two gates."""

    def __init__(self, config: DecoderConfig, plan: ShortConvConfig, index: int) -> None:
        super().__init__()
        hidden = config.hidden_size
        self.in_proj: Linear = Linear(hidden, 3 * hidden, bias=plan.bias, out_dtype="float32")
        self.conv: ShortConv = ShortConv(index, plan)
        self.out_proj: Linear = Linear(hidden, hidden, bias=plan.bias, out_dtype="float32")

    @property
    def input(self) -> Linear:
        """The matrix of both gates and the convolution's inputs."""
        return self.in_proj

    def mix(self, projected: nn.Tensor, step: Step) -> nn.Tensor:
        return self.out_proj(self.conv(projected, step.kv))


class GatedDeltaMixer(Mixer):
    """A gated delta net, whose decays and rates are computed from float32 matrices."""

    def __init__(self, config: DecoderConfig, plan: GatedDeltaConfig, index: int) -> None:
        super().__init__()
        hidden, inner = config.hidden_size, plan.channels + plan.num_values
        self.in_proj_qkvz: Linear = Linear(hidden, inner, bias=False, out_dtype="float32")
        self.in_proj_ba: Linear = Linear(
            hidden, 2 * plan.num_value_heads, bias=False, out_dtype="float32", keep_float32=True
        )
        self.net: GatedDelta = GatedDelta(index, plan, config.norm_eps)
        self.out_proj: Linear = Linear(plan.num_values, hidden, bias=False, out_dtype="float32")

    def forward(self, x: nn.Tensor, step: Step) -> nn.Tensor:
        return self.out_proj(self.net(self.in_proj_qkvz(x), self.in_proj_ba(x), step.kv))

    def add_norm(
        self, update: nn.Tensor, residual: nn.Tensor, norm: Norm, step: Step
    ) -> tuple[nn.Tensor, nn.Tensor]:
        x, residual = norm.add(update, residual)
        return self(x, step), residual


def build_mixer(config: DecoderConfig, layer: int, kv_dtype: str) -> Mixer:
    """Return the mixer of layer `layer`."""
    before = config.layers[:layer]
    index = sum(not isinstance(n.mixer, AttentionConfig) for n in before)
    match config.layers[layer].mixer:
        case AttentionConfig() as plan:
            return Attention(config, plan, layer, kv_dtype)
        case ShortConvConfig() as plan:
            return ShortConvMixer(config, plan, index)
        case GatedDeltaConfig() as plan:
            return GatedDeltaMixer(config, plan, index)
