"""The graph of a vision tower: patches of several images in, rows of a decoder's embeddings out.

Rows are tokens. The inputs, which are images or parts of them, are concatenated without padding.
"""

from __future__ import annotations

__all__ = ("AnyEncoder", "VisionTower", "build_projector")

from collections.abc import Sequence

from tvm.relax.frontend import nn

from aiomlc.models.config.decoder import NormKind
from aiomlc.models.config.layers import AttentionConfig, MlpConfig
from aiomlc.models.config.vision import (
    ActivationStep,
    LinearStep,
    MergeStep,
    NormStep,
    PoolStep,
    ProjectorStep,
    ScaleStep,
    StandardizeStep,
    UnitNormStep,
    VisionConfig,
)
from aiomlc.models.graph.block_encoder import BlockEncoder
from aiomlc.models.graph.columns import PermuteColumns, ScaleColumns, SliceColumns
from aiomlc.models.graph.encoder import DisentangledEncoder, Encoder
from aiomlc.models.graph.feed_forward import GatedMlp, PlainMlp, build_activation
from aiomlc.models.graph.layers import (
    Add,
    Embedding,
    LayerNorm,
    Linear,
    Norm,
    QKNorm,
    QKVNorm,
    RMSNorm,
    Scale,
)
from aiomlc.models.graph.module import Module
from aiomlc.models.graph.packed import (
    MergeRows,
    PackedAttention,
    PackedTokens,
    PoolRows,
    Standardize,
    UnitNorm,
)
from aiomlc.models.graph.speech import SpeechModel


class VisionTower(Module):
    """A tower with its projector. `encode` is the function of the compiled library."""

    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        hidden, has_class = config.hidden_size, config.has_class_token
        self.patch_embed: Linear = Linear(
            config.patch_inputs,
            hidden,
            bias=config.patch_bias and not has_class,
            out_dtype="float32",
        )
        frames = config.num_frames if config.separates_frames else 1
        self.frame_embeds: nn.ModuleList = nn.ModuleList(
            [
                Linear(config.patch_inputs, hidden, bias=False, out_dtype="float32")
                for _ in range(1, frames)
            ]
        )
        self.class_embed: Linear | None = _column(hidden) if has_class else None
        self.patch_bias: Linear | None = None
        if has_class and config.patch_bias:
            self.patch_bias = _column(hidden)
        self.flag: SliceColumns = SliceColumns()
        self.position_embed: Embedding | None = None
        if config.num_positions:
            self.position_embed = Embedding(config.num_positions, hidden)
        self.sum: Add = Add()
        self.pre_norm: Norm | None = _norm(config) if config.pre_norm else None
        self.layers: nn.ModuleList = nn.ModuleList(
            [_Block(config) for _ in range(config.num_hidden_layers)]
        )
        self.post_norm: Norm | None = _norm(config) if config.post_norm else None
        self.projector: nn.ModuleList = build_projector(config.projector)
        self.newline: nn.Parameter | None = None  # Read by the loader.
        if config.newline:
            self.newline = nn.Parameter((config.embedded_size,), "float32")

    def encode(
        self,
        patches: nn.Tensor,
        flags: nn.Tensor,
        positions: nn.Tensor,
        lengths: nn.Tensor,
        order: nn.Tensor,
    ) -> nn.Tensor:
        """Return rows in place of token embeddings, float32 `[m, embedded size]`.

        Args:
            patches: The pixels of each token, float32 `[n, patch inputs]`; zeros of class tokens.
            flags: Whether each token is a class token, and whether it is a patch, float32 `[n, 2]`.
            positions: Rows of the table of positions, int32 `[n]`; of RoPE, see `PackedAttention`.
            lengths: Tokens of each input, int32 `[b]`.
            order: The tokens that are joined to each output row, int32 `[m, count]`.
        """
        x = self.embed(patches)
        for column, vector in enumerate((self.class_embed, self.patch_bias)):
            if vector is not None:
                x = self.sum(x, vector(self.flag(flags, column, 1)))
        if self.position_embed is not None:
            x = self.sum(x, self.position_embed(positions))
        if self.pre_norm is not None:
            x = self.pre_norm(x)
        tokens = PackedTokens(positions, lengths)
        for layer in self.layers:
            x = layer(x, tokens)
        if self.post_norm is not None:
            x = self.post_norm(x)
        for step in self.projector:
            x = step(x, order)
        return x

    def embed(self, patches: nn.Tensor) -> nn.Tensor:
        """Return the products of patches, float32 `[n, hidden]`; all frames have their pixels."""
        x = self.patch_embed(patches)
        for frame in self.frame_embeds:
            x = self.sum(x, frame(patches))
        return x


AnyEncoder = Encoder | DisentangledEncoder | BlockEncoder | VisionTower | SpeechModel


class _Block(Module):
    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        hidden = config.hidden_size
        self.norm1: Norm = _norm(config)
        self.attention: _Attention = _Attention(config)
        self.output: Linear = Linear(
            config.num_heads * config.head_dim, hidden, bias=config.output_bias, out_dtype="float32"
        )
        self.norm2: Norm = _norm(config)
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
        self.output_norm1: Norm | None = _norm(config) if config.output_norms else None
        self.output_norm2: Norm | None = _norm(config) if config.output_norms else None
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
    def __init__(self, config: VisionConfig) -> None:
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


def _norm(config: VisionConfig) -> Norm:
    return _build_norm(config.norm_kind, config.hidden_size, config.norm_eps)


def _build_norm(kind: NormKind, size: int, eps: float) -> Norm:
    if kind == "rms":
        return RMSNorm(size, eps)

    return LayerNorm(size, eps, bias=kind == "layer")


def _column(hidden: int) -> Linear:
    """Return a vector that is added to the rows whose flag is 1, and to no others."""
    return Linear(1, hidden, bias=False, out_dtype="float32", keep_float32=True)
