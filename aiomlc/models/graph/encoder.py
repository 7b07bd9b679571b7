"""The encoder's graph: tokens of several inputs in, one vector for each token out.

Rows are tokens. The inputs are concatenated without padding.
"""

from __future__ import annotations

__all__ = ("Attend", "Encoder")

from collections.abc import Callable

from tvm.relax.frontend import nn

from aiomlc.models.config.encoder import EncoderConfig
from aiomlc.models.graph.layers import Add, Embedding, Gelu, LayerNorm, Linear
from aiomlc.models.graph.module import Module

Attend = Callable[[nn.Tensor, nn.Tensor, int], nn.Tensor]
"""qkv `[n, 3 * hidden]`, lengths of the inputs int32 `[b]`, number of heads -> `[n, hidden]`."""


class Encoder(Module):
    """A bidirectional encoder. `encode` is the function of the compiled library."""

    def __init__(self, config: EncoderConfig, attend: Attend) -> None:
        super().__init__()
        self.embeddings: _Embeddings = _Embeddings(config)
        self.encoder: _Layers = _Layers(config, attend)

    def encode(
        self, ids: nn.Tensor, positions: nn.Tensor, types: nn.Tensor, lengths: nn.Tensor
    ) -> nn.Tensor:
        """Return the hidden states, float32 `[n, hidden]`.

        Args:
            ids: Token ids, int32 `[n]`.
            positions: Positions within each input, int32 `[n]`.
            types: Token types, int32 `[n]`.
            lengths: Tokens of each input, int32 `[b]`.
        """
        return self.encoder(self.embeddings(ids, positions, types), lengths)


class _Embeddings(Module):
    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        hidden = config.hidden_size
        self.word_embeddings: Embedding = Embedding(config.vocab_size, hidden)
        self.position_embeddings: Embedding = Embedding(config.num_positions, hidden)
        self.token_type_embeddings: Embedding = Embedding(config.num_token_types, hidden)
        self.sum: Add = Add()
        self.LayerNorm: LayerNorm = LayerNorm(hidden, config.layer_norm_eps)

    def forward(self, ids: nn.Tensor, positions: nn.Tensor, types: nn.Tensor) -> nn.Tensor:
        x = self.sum(self.word_embeddings(ids), self.token_type_embeddings(types))
        return self.LayerNorm.add(x, self.position_embeddings(positions))[0]


class _Layers(Module):
    def __init__(self, config: EncoderConfig, attend: Attend) -> None:
        super().__init__()
        layers = range(config.num_hidden_layers)
        self.layer: nn.ModuleList = nn.ModuleList([_Block(config, attend) for _ in layers])

    def forward(self, x: nn.Tensor, lengths: nn.Tensor) -> nn.Tensor:
        for layer in self.layer:
            x = layer(x, lengths)
        return x


class _Block(Module):
    def __init__(self, config: EncoderConfig, attend: Attend) -> None:
        super().__init__()
        self.attention = _Attention(config, attend)
        self.intermediate = _Intermediate(config)
        self.output = _Output(config.intermediate_size, config)

    def forward(self, x: nn.Tensor, lengths: nn.Tensor) -> nn.Tensor:
        x = self.attention(x, lengths)
        return self.output(self.intermediate(x), x)


class _Attention(Module):
    def __init__(self, config: EncoderConfig, attend: Attend) -> None:
        super().__init__()
        self.self = _SelfAttention(config, attend)
        self.output = _Output(config.hidden_size, config)

    def forward(self, x: nn.Tensor, lengths: nn.Tensor) -> nn.Tensor:
        return self.output(self.self(x, lengths), x)


class _SelfAttention(Module):
    def __init__(self, config: EncoderConfig, attend: Attend) -> None:
        super().__init__()
        hidden = config.hidden_size
        self.num_heads = config.num_attention_heads
        self.attend = attend
        self.qkv = Linear(hidden, 3 * hidden, bias=True, out_dtype="float32")

    def forward(self, x: nn.Tensor, lengths: nn.Tensor) -> nn.Tensor:
        return self.attend(self.qkv(x), lengths, self.num_heads)


class _Intermediate(Module):
    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        hidden, inner = config.hidden_size, config.intermediate_size
        self.dense = Linear(hidden, inner, bias=True, out_dtype="float32")
        self.activation = Gelu()

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return self.activation(self.dense(x))


class _Output(Module):
    def __init__(self, inputs: int, config: EncoderConfig) -> None:
        super().__init__()
        self.dense = Linear(inputs, config.hidden_size, bias=True, out_dtype="float32")
        self.LayerNorm = LayerNorm(config.hidden_size, config.layer_norm_eps)

    def forward(self, x: nn.Tensor, residual: nn.Tensor) -> nn.Tensor:
        return self.LayerNorm.add(self.dense(x), residual)[0]
