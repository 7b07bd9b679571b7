"""The encoder's graph: tokens of several inputs in, one vector for each token out, or the logits of
each input.

Rows are tokens. The inputs are concatenated without padding.
"""

from __future__ import annotations

__all__ = ("DisentangledEncoder", "Encoder")

from tvm.relax.frontend import nn

from aiomlc.models.config.encoder import (
    Alibi,
    EncoderConfig,
    PositionBuckets,
    RelativePositions,
)
from aiomlc.models.config.layers import AttentionConfig
from aiomlc.models.graph.classifier import ClassifierHead
from aiomlc.models.graph.columns import ConcatColumns, SliceColumns
from aiomlc.models.graph.layers import (
    Add,
    Embedding,
    Gelu,
    GeluMul,
    LayerNorm,
    Linear,
    SiluMul,
)
from aiomlc.models.graph.module import Module
from aiomlc.models.graph.packed import (
    AlibiAttention,
    BiasedAttention,
    DisentangledAttention,
    PackedAttention,
    PackedTokens,
    PositionTiles,
)
from aiomlc.models.graph.position_bias import BucketBias, RelativeVectors, relative_positions


class _AnyEncoder(Module):
    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.embeddings: _Embeddings = _Embeddings(config)
        self.encoder: _Layers = _Layers(config)
        self.classifier: ClassifierHead | None = None
        if config.classifier is not None:
            self.classifier = ClassifierHead(
                config.classifier, config.hidden_size, config.layer_norm_eps
            )

    def _encode(self, ids: nn.Tensor, types: nn.Tensor, tokens: PackedTokens) -> nn.Tensor:
        x = self.embeddings(ids, tokens.positions, types)
        x = self.encoder(x, tokens)
        return x if self.classifier is None else self.classifier(x, tokens.lengths)


class Encoder(_AnyEncoder):
    """A bidirectional encoder. `encode` is the function of the compiled library."""

    def encode(
        self, ids: nn.Tensor, positions: nn.Tensor, types: nn.Tensor, lengths: nn.Tensor
    ) -> nn.Tensor:
        """Return hidden states, float32 `[n, hidden]`; of a classifier, logits `[b, labels]`.

        Args:
            ids: Token ids, int32 `[n]`.
            positions: Rows of the table of positions, int32 `[n]`.
            types: Token types, int32 `[n]`.
            lengths: Tokens of each input, int32 `[b]`.
        """
        return self._encode(ids, types, PackedTokens(positions, lengths))


class DisentangledEncoder(_AnyEncoder):
    """An encoder with disentangled attention: `prepare` computes what no input changes."""

    def prepare(self) -> nn.Tensor:
        """Return the last argument of `encode`."""
        return self.encoder.position_tiles()

    def encode(
        self,
        ids: nn.Tensor,
        positions: nn.Tensor,
        types: nn.Tensor,
        lengths: nn.Tensor,
        position_tiles: nn.Tensor,
    ) -> nn.Tensor:
        """Return what `Encoder.encode` does, for the same arguments and the result of `prepare`."""
        tokens = PackedTokens(positions, lengths, position_tiles=position_tiles)
        return self._encode(ids, types, tokens)


class _Embeddings(Module):
    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        size = config.embedding_size or config.hidden_size
        self.word_embeddings: Embedding = Embedding(config.vocab_size, size)
        self.position_embeddings: Embedding | None = None
        if config.has_position_table:
            self.position_embeddings = Embedding(config.num_positions, size)
        self.token_type_embeddings: Embedding | None = None
        if config.num_token_types:
            self.token_type_embeddings = Embedding(config.num_token_types, size)
        self.sum: Add = Add()
        self.LayerNorm: LayerNorm = LayerNorm(size, config.layer_norm_eps)
        self.projection: Linear | None = None
        if config.embedding_size is not None:
            self.projection = Linear(size, config.hidden_size, bias=True, out_dtype="float32")

    def forward(self, ids: nn.Tensor, positions: nn.Tensor, types: nn.Tensor) -> nn.Tensor:
        x = self._embed(ids, positions, types)
        return x if self.projection is None else self.projection(x)

    def _embed(self, ids: nn.Tensor, positions: nn.Tensor, types: nn.Tensor) -> nn.Tensor:
        x = self.word_embeddings(ids)
        if self.token_type_embeddings is not None:
            x = self.sum(x, self.token_type_embeddings(types))
        if self.position_embeddings is None:
            return self.LayerNorm(x)

        return self.LayerNorm.add(x, self.position_embeddings(positions))[0]


class _Layers(Module):
    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        layers = range(config.num_hidden_layers)
        self.layer: nn.ModuleList = nn.ModuleList([_Block(config, i) for i in layers])
        self.order: tuple[int, ...] = config.layers
        self.relative_attention_bias: BucketBias | None = None
        self.relative_positions: RelativeVectors | None = None
        self.tiles: PositionTiles | None = None
        match config.position_bias:
            case PositionBuckets() as buckets:
                self.relative_attention_bias = BucketBias(
                    buckets, config.num_attention_heads, config.max_tokens
                )
            case RelativePositions() as relative:
                hidden, eps = config.hidden_size, config.layer_norm_eps
                self.relative_positions = RelativeVectors(relative, hidden, eps)
                self.tiles = PositionTiles(_attention_plan(config))
            case _:
                pass

    def forward(self, x: nn.Tensor, tokens: PackedTokens) -> nn.Tensor:
        if self.relative_attention_bias is not None:
            tokens = tokens._replace(biases=self.relative_attention_bias())
        for layer in self.order:
            x = self.layer[layer](x, tokens)
        return x

    def position_tiles(self) -> nn.Tensor:
        assert self.relative_positions is not None
        assert self.tiles is not None
        x = self.relative_positions()
        return self.tiles([layer.attention.self.project_positions(x) for layer in self.layer])


class _Block(Module):
    def __init__(self, config: EncoderConfig, layer: int) -> None:
        super().__init__()
        self.attention = _Attention(config, layer)
        self.intermediate = _Intermediate(config) if config.gate is None else _Gated(config)
        self.output = _Output(config.intermediate_size, config, bias=config.down_bias)

    def forward(self, x: nn.Tensor, tokens: PackedTokens) -> nn.Tensor:
        x = self.attention(x, tokens)
        return self.output.add(self.intermediate(x, self.output.dense), x)


class _Attention(Module):
    def __init__(self, config: EncoderConfig, layer: int) -> None:
        super().__init__()
        self.self = _SelfAttention(config, layer)
        self.output = _Output(config.hidden_size, config, bias=config.output_bias)
        self.LayerNorm: LayerNorm | None = None
        if config.has_more_norms:
            self.LayerNorm = LayerNorm(config.hidden_size, config.layer_norm_eps)

    def forward(self, x: nn.Tensor, tokens: PackedTokens) -> nn.Tensor:
        mixed = self.output.add(self.output.dense(self.self(x, tokens)), x)
        return mixed if self.LayerNorm is None else self.LayerNorm.add(mixed, x)[0]


class _SelfAttention(Module):
    def __init__(self, config: EncoderConfig, layer: int) -> None:
        super().__init__()
        hidden = config.hidden_size
        self.qkv = Linear(hidden, 3 * hidden, bias=config.qkv_bias, out_dtype="float32")
        self.norms: _QKNorms | None = None
        if config.has_more_norms:
            self.norms = _QKNorms(hidden, config.layer_norm_eps)
        self.positions: Linear | None = None
        bias = config.position_bias
        if isinstance(bias, RelativePositions) and bias.has_projections:
            self.positions = Linear(hidden, 2 * hidden, bias=True, out_dtype="float32")
        self.attend = _build_attention(config, layer)

    def forward(self, x: nn.Tensor, tokens: PackedTokens) -> nn.Tensor:
        qkv = self.qkv(x)
        return self.attend(qkv if self.norms is None else self.norms(qkv), tokens)

    def project_positions(self, x: nn.Tensor) -> nn.Tensor:
        """Return columns that begin with the queries and keys of relative positions."""
        return self.qkv(x) if self.positions is None else self.positions(x)


class _QKNorms(Module):
    """Norms of the queries and keys of `[n, 3 * hidden]`, each over all heads."""

    def __init__(self, hidden: int, eps: float) -> None:
        super().__init__()
        self.hidden = hidden
        self.query = LayerNorm(hidden, eps)
        self.key = LayerNorm(hidden, eps)
        self.slice = SliceColumns()
        self.concat = ConcatColumns()

    def forward(self, qkv: nn.Tensor) -> nn.Tensor:
        size = self.hidden
        query = self.query(self.slice(qkv, 0, size))
        key = self.key(self.slice(qkv, size, size))
        return self.concat(self.concat(query, key, 0, size), qkv, 2 * size, size)


def _attention_plan(config: EncoderConfig) -> AttentionConfig:
    heads = config.num_attention_heads
    head_dim = config.hidden_size // heads
    # A score of disentangled attention has three products in place of one.
    products = 3 if isinstance(config.position_bias, RelativePositions) else 1
    return AttentionConfig(
        num_heads=heads,
        num_kv_heads=heads,
        head_dim=head_dim,
        scale=(products * head_dim) ** -0.5,
        rope=config.rope,
    )


def _build_attention(
    config: EncoderConfig, layer: int
) -> PackedAttention | BiasedAttention | AlibiAttention | DisentangledAttention:
    plan = _attention_plan(config)
    match config.position_bias:
        case None:
            return PackedAttention(plan, is_causal=False)
        case PositionBuckets():
            return BiasedAttention(plan)
        case Alibi(slopes=slopes):
            return AlibiAttention(plan, slopes)
        case RelativePositions() as relative:
            positions = relative_positions(relative, config.max_tokens)
            return DisentangledAttention(plan, layer, positions)


class _Intermediate(Module):
    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        hidden, inner = config.hidden_size, config.intermediate_size
        self.dense = Linear(hidden, inner, bias=config.up_bias, out_dtype="float32")
        self.activation = Gelu(config.activation)

    def forward(self, x: nn.Tensor, down: Linear) -> nn.Tensor:
        return self.activation.fused_mlp(x, self.dense, down)


class _Gated(Module):
    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        hidden, self.inner = config.hidden_size, config.intermediate_size
        self.dense = Linear(hidden, 2 * self.inner, bias=config.up_bias, out_dtype="float32")
        self.activation = GeluMul() if config.gate == "gelu" else SiluMul()
        self.has_gate_last: bool = config.has_gate_last
        self.slice = SliceColumns()
        self.concat = ConcatColumns()

    def forward(self, x: nn.Tensor, down: Linear) -> nn.Tensor:
        x = self.dense(x)
        if self.has_gate_last:
            x = self.concat(self.slice(x, self.inner, self.inner), x, 0, self.inner)
        return down(self.activation(x))


class _Output(Module):
    def __init__(self, inputs: int, config: EncoderConfig, *, bias: bool) -> None:
        super().__init__()
        self.dense = Linear(inputs, config.hidden_size, bias=bias, out_dtype="float32")
        self.LayerNorm = LayerNorm(config.hidden_size, config.layer_norm_eps)

    def add(self, update: nn.Tensor, residual: nn.Tensor) -> nn.Tensor:
        """Return the norm of the sum."""
        return self.LayerNorm.add(update, residual)[0]
