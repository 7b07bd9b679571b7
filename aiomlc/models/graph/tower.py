"""The layers that all towers share, and the projectors after them."""

from __future__ import annotations

__all__ = ("TowerBlock", "build_projector", "tower_norm")

from collections.abc import Sequence

from tvm.relax.frontend import nn

from aiomlc.models.config.decoder import NormKind
from aiomlc.models.config.layers import AttentionConfig, MlpConfig
from aiomlc.models.config.tower import (
    ActivationStep,
    LinearStep,
    MergeStep,
    NormStep,
    PoolStep,
    ProjectorStep,
    ScaleStep,
    StandardizeStep,
    TowerConfig,
    UnitNormStep,
)
from aiomlc.models.graph.columns import PermuteColumns, ScaleColumns
from aiomlc.models.graph.feed_forward import GatedMlp, PlainMlp, build_activation
from aiomlc.models.graph.layers import Add, LayerNorm, Linear, Norm, QKNorm, QKVNorm, RMSNorm, Scale
from aiomlc.models.graph.module import Module
from aiomlc.models.graph.packed import (
    MergeRows,
    PackedAttention,
    PackedTokens,
    PoolRows,
    Standardize,
    UnitNorm,
)


class TowerBlock(Module):
    """A layer of a tower: attention and an MLP, with norms before both."""

    def __init__(self, config: TowerConfig) -> None:
        super().__init__()
        hidden = config.hidden_size
        self.norm1: Norm = tower_norm(config)
        self.attention: _Attention = _Attention(config)
        self.output: Linear = Linear(
            config.num_heads * config.head_dim, hidden, bias=config.output_bias, out_dtype="float32"
        )
        self.norm2: Norm = tower_norm(config)
        mlp = MlpConfig(
            intermediate_size=config.intermediate_size,
            activation=config.activation,
            gated=config.gated,
            bias=config.mlp_bias,
        )
        self.mlp: GatedMlp | PlainMlp = (GatedMlp if config.gated else PlainMlp)(mlp, hidden)
        self.scale1: ScaleColumns | None = None
        self.scale2: ScaleColumns | None = None
        if config.layer_scale:
            self.scale1, self.scale2 = ScaleColumns(hidden), ScaleColumns(hidden)
        self.output_norm1: Norm | None = tower_norm(config) if config.output_norms else None
        self.output_norm2: Norm | None = tower_norm(config) if config.output_norms else None
        self.sum: Add = Add()

    def forward(self, x: nn.Tensor, tokens: PackedTokens) -> nn.Tensor:
        update = self.output(self.attention(self.norm1(x), tokens))
        if self.output_norm1 is not None:
            update = self.output_norm1(update)
        if self.scale1 is not None:
            update = self.scale1(update)
        update, x = self.mlp(update, x, self.norm2)
        if self.scale2 is not None:
            update = self.scale2(update)
        if self.output_norm2 is not None:
            update = self.output_norm2(update)
        return self.sum(x, update)


class _Attention(Module):
    def __init__(self, config: TowerConfig) -> None:
        super().__init__()
        heads, head_dim = config.num_heads, config.head_dim
        self.head_dim: int = head_dim
        self.qkv: Linear = Linear(
            config.hidden_size, 3 * heads * head_dim, bias=config.qkv_bias, out_dtype="float32"
        )
        plan = AttentionConfig(
            num_heads=heads,
            num_kv_heads=heads,
            head_dim=head_dim,
            scale=config.attention_scale or head_dim**-0.5,
            rope=config.rope,
        )
        self.qk_norm: QKNorm | QKVNorm | None = None
        if config.qk_norm != "none":
            size = head_dim * (heads if config.qk_norm == "full_width" else 1)
            self.q_norm: RMSNorm = RMSNorm(size, config.norm_eps)
            self.k_norm: RMSNorm = RMSNorm(size, config.norm_eps)
            self.qk_norm = QKNorm(heads, heads, eps=config.norm_eps, out_dtype="float32")
            if config.value_norm:
                self.qk_norm = QKVNorm(plan, eps=config.norm_eps, out_dtype="float32")
        self.attend: PackedAttention = PackedAttention(plan, is_causal=False)

    def forward(self, x: nn.Tensor, tokens: PackedTokens) -> nn.Tensor:
        qkv = self.qkv(x)
        if self.qk_norm is not None:
            qkv = qkv.reshape(qkv.shape[0], -1, self.head_dim)
            qkv = self.qk_norm(qkv, self.q_norm.weight, self.k_norm.weight)
        return self.attend(qkv, tokens)


class _Apply(Module):
    """A layer of the projector that needs no order of tokens."""

    def __init__(self, layer: Module) -> None:
        super().__init__()
        self.layer: Module = layer

    def forward(self, x: nn.Tensor, _: nn.Tensor) -> nn.Tensor:
        return self.layer(x)


class _Merge(Module):
    """See `MergeStep`."""

    def __init__(self, step: MergeStep) -> None:
        super().__init__()
        self.merge: MergeRows = MergeRows()
        self.columns: PermuteColumns | None = None
        if step.channels_first and step.count > 1:
            numbers = range(step.count)
            self.columns = PermuteColumns(
                [row * step.size + channel for channel in range(step.size) for row in numbers]
            )

    def forward(self, x: nn.Tensor, order: nn.Tensor) -> nn.Tensor:
        x = self.merge(x, order)
        return x if self.columns is None else self.columns(x)


def build_projector(steps: Sequence[ProjectorStep]) -> nn.ModuleList:
    """Return layers of `(x, order)` that make rows of a decoder's embeddings."""
    return nn.ModuleList(list(map(_build_step, steps)))


def _build_step(step: ProjectorStep) -> Module:
    match step:
        case MergeStep():
            return _Merge(step)
        case PoolStep():
            return PoolRows()
        case _:
            return _Apply(_build_layer(step))


def _build_layer(step: ProjectorStep) -> Module:
    """Return a layer that needs no order of tokens."""
    match step:
        case NormStep():
            return _build_norm(step.norm_kind, step.size, step.eps)
        case UnitNormStep():
            return UnitNorm(step.size, step.eps)
        case LinearStep():
            return Linear(step.inputs, step.outputs, bias=step.bias, out_dtype="float32")
        case ActivationStep():
            return build_activation(step.activation)
        case ScaleStep():
            return Scale(step.factor)
        case StandardizeStep():
            return Standardize(step.size)
        case _:
            raise AssertionError(step)


def tower_norm(config: TowerConfig) -> Norm:
    """Return a norm of hidden states."""
    return _build_norm(config.norm_kind, config.hidden_size, config.norm_eps)


def _build_norm(kind: NormKind, size: int, eps: float) -> Norm:
    if kind == "rms":
        return RMSNorm(size, eps)

    return LayerNorm(size, eps, bias=kind == "layer")
