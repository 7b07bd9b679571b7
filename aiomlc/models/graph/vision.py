"""The graph of a vision tower: patches of several images in, rows of a decoder's embeddings out.

Rows are tokens. The inputs, which are images or parts of them, are concatenated without padding.
"""

from __future__ import annotations

__all__ = ("VisionTower",)

from tvm.relax.frontend import nn

from aiomlc.models.config.layers import AttentionConfig, MlpConfig
from aiomlc.models.config.vision import VisionConfig
from aiomlc.models.graph.columns import ConcatColumns, SliceColumns
from aiomlc.models.graph.feed_forward import PlainMlp
from aiomlc.models.graph.layers import Add, Embedding, Linear, Norm
from aiomlc.models.graph.module import Module
from aiomlc.models.graph.packed import MergeRows, PackedAttention, PackedTokens
from aiomlc.models.graph.tower import TowerBlock, build_projector, tower_norm


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
        self.pre_norm: Norm | None = tower_norm(config) if config.pre_norm else None
        self.layers: nn.ModuleList = nn.ModuleList(
            [TowerBlock(config) for _ in range(config.num_hidden_layers)]
        )
        self.post_norm: Norm | None = tower_norm(config) if config.post_norm else None
        self.attention_pool: _AttentionPool | None = None
        if config.attention_pool:
            self.attention_pool = _AttentionPool(config)
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
        if self.attention_pool is not None:
            x = self.attention_pool(x, self.flag(flags, 1, 1), tokens, order)
        return self.project(x, order)

    def project(self, x: nn.Tensor, order: nn.Tensor) -> nn.Tensor:
        """Return the rows `[m, embedded size]` of the outputs of the last layer."""
        for step in self.projector:
            x = step(x, order)
        return x

    def embed(self, patches: nn.Tensor) -> nn.Tensor:
        """Return the products of patches, float32 `[n, hidden]`; all frames have their pixels."""
        x = self.patch_embed(patches)
        for frame in self.frame_embeds:
            x = self.sum(x, frame(patches))
        return x


class _AttentionPool(Module):
    """Attention of a learned query, the probe, to all tokens of an image, and an MLP (SigLIP).

    The kernel attends from every token: each has the probe's query, and the row of one is kept.
    """

    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        self.hidden: int = config.hidden_size
        self.probe: Linear = _column(self.hidden)
        self.qkv: Linear = Linear(self.hidden, 3 * self.hidden, bias=True, out_dtype="float32")
        self.slice: SliceColumns = SliceColumns()
        self.concat: ConcatColumns = ConcatColumns()
        plan = AttentionConfig(
            num_heads=config.num_heads,
            num_kv_heads=config.num_heads,
            head_dim=config.head_dim,
            scale=config.head_dim**-0.5,
            rope=None,
        )
        self.attend: PackedAttention = PackedAttention(plan, is_causal=False)
        self.merge: MergeRows = MergeRows()
        self.output: Linear = Linear(self.hidden, self.hidden, bias=True, out_dtype="float32")
        self.norm: Norm = tower_norm(config)
        mlp = MlpConfig(
            intermediate_size=config.intermediate_size,
            activation=config.activation,
            gated=False,
            bias=True,
        )
        self.mlp: PlainMlp = PlainMlp(mlp, self.hidden)
        self.sum: Add = Add()

    def forward(
        self, x: nn.Tensor, ones: nn.Tensor, tokens: PackedTokens, order: nn.Tensor
    ) -> nn.Tensor:
        """Return a row for each image, `[m, hidden]`; `order` `[m, 1]` has a token of each."""
        query = self.slice(self.qkv(self.probe(ones)), 0, self.hidden)
        qkv = self.concat(query, self.qkv(x), self.hidden, 2 * self.hidden)
        pooled = self.output(self.merge(self.attend(qkv, tokens), order))
        return self.sum(pooled, self.mlp.without_norm(self.norm(pooled)))


def _column(hidden: int) -> Linear:
    """Return a vector that is added to the rows whose flag is 1, and to no others."""
    return Linear(1, hidden, bias=False, out_dtype="float32", keep_float32=True)
