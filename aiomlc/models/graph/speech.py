"""The graph of a model that transcribes speech: an encoder of log-mel frames, and a decoder whose
layers attend to their own tokens and to the encoder's outputs.

Rows are frames or tokens. The rows of several windows are concatenated without padding.
"""

from __future__ import annotations

__all__ = ("SpeechModel",)

from tvm.relax.frontend import nn

from aiomlc.models.config.speech import SpeechConfig, SpeechStackConfig
from aiomlc.models.graph.columns import PermuteColumns
from aiomlc.models.graph.layers import Add, Embedding, Gelu, LayerNorm, Linear
from aiomlc.models.graph.module import Module
from aiomlc.models.graph.packed import MergeRows, WeighRows
from aiomlc.models.graph.slots import AttendSlots, SlotRows, SplitAttention, WriteSlots

_TAPS = 3  # Frames of a convolution.


class SpeechModel(Module):
    """An encoder and a decoder. Its methods are the functions of the compiled library."""

    def __init__(self, config: SpeechConfig) -> None:
        super().__init__()
        self.encoder: _Encoder = _Encoder(config)
        self.decoder: _Decoder = _Decoder(config)

    def encode(
        self,
        frames: nn.Tensor,
        weights: nn.Tensor,
        order: nn.Tensor,
        positions: nn.Tensor,
        lengths: nn.Tensor,
    ) -> nn.Tensor:
        """Return the encoder's outputs, float32 `[m, hidden]`.

        Args:
            frames: Each frame with the one before and the one after it, in the order of the first
                convolution's columns, float32 `[n, 3 * mels]`.
            weights: 1 for a frame, and 0 for the padding of the second convolution, `[n, 1]`.
            order: The rows that the second convolution reads for each output, int32 `[m, 3]`.
            positions: Rows of the table of positions, int32 `[m]`.
            lengths: Outputs of each window, int32 `[b]`.
        """
        return self.encoder(frames, weights, order, positions, lengths)

    def remember(
        self,
        states: nn.Tensor,
        lengths: nn.Tensor,
        ends: nn.Tensor,
        slots: nn.Tensor,
        memory: nn.Tensor,
    ) -> nn.Tensor:
        """Write keys and values of the encoder's outputs to the memory, and return the slots.

        Args:
            states: What `encode` returned, float32 `[m, hidden]`.
            lengths, ends, slots: See `SlotRows`.
            memory: Of the encoder's outputs, float32 `[layers, slots, pages, page elements]`.
        """
        for layer in self.decoder.layers:
            slots = layer.cross_attention.write(states, SlotRows(lengths, ends, slots), memory)
        return slots

    def decode(  # noqa: PLR0913 - the inputs of the library's function.
        self,
        ids: nn.Tensor,
        positions: nn.Tensor,
        lengths: nn.Tensor,
        ends: nn.Tensor,
        window_ends: nn.Tensor,
        slots: nn.Tensor,
        order: nn.Tensor,
        memory: nn.Tensor,
        window_memory: nn.Tensor,
    ) -> nn.Tensor:
        """Return logits, float32 `[r, vocab]`, and write the tokens' keys and values.

        Args:
            ids: Token ids, int32 `[n]`.
            positions: Rows of the table of positions, int32 `[n]`.
            lengths, ends, slots: Of the tokens, see `SlotRows`.
            window_ends: The outputs of the encoder for each sequence, int32 `[b]`.
            order: The rows whose logits are computed, int32 `[r, 1]`.
            memory: Of the tokens, float32 `[layers, slots, pages, page elements]`.
            window_memory: What `remember` wrote.
        """
        rows = SlotRows(lengths, ends, slots)
        window = SlotRows(lengths, window_ends, slots)
        x = self.decoder.embed(ids, positions)
        for layer in self.decoder.layers:
            x = layer.attention(x, rows, memory)
            x = layer.cross_attention(x, window, window_memory)
            x = layer.feed_forward(x)
        return self.decoder.project(x, order)


class _Encoder(Module):
    def __init__(self, config: SpeechConfig) -> None:
        super().__init__()
        hidden = config.hidden_size
        self.conv1: Linear = _linear(_TAPS * config.num_mels, hidden)
        self.conv2: Linear = _linear(_TAPS * hidden, hidden)
        self.activation: Gelu = Gelu()
        self.weigh: WeighRows = WeighRows()
        self.merge: MergeRows = MergeRows()
        # The columns of a convolution's matrix: the taps of each channel.
        self.columns: PermuteColumns = PermuteColumns(
            [tap * hidden + channel for channel in range(hidden) for tap in range(_TAPS)]
        )
        self.positions: Embedding = Embedding(config.encoder.num_positions, hidden)
        self.sum: Add = Add()
        self.layers: nn.ModuleList = nn.ModuleList(
            [_EncoderLayer(config) for _ in range(config.encoder.num_layers)]
        )
        self.norm: LayerNorm = LayerNorm(hidden, config.norm_eps)

    def forward(
        self,
        frames: nn.Tensor,
        weights: nn.Tensor,
        order: nn.Tensor,
        positions: nn.Tensor,
        lengths: nn.Tensor,
    ) -> nn.Tensor:
        x = self.weigh(self.activation(self.conv1(frames)), weights)
        x = self.activation(self.conv2(self.columns(self.merge(x, order))))
        x = self.sum(x, self.positions(positions))
        for layer in self.layers:
            x = layer(x, lengths)
        return self.norm(x)


class _Decoder(Module):
    def __init__(self, config: SpeechConfig) -> None:
        super().__init__()
        hidden, stack = config.hidden_size, config.decoder
        self.tokens: Embedding = Embedding(config.vocab_size, hidden)
        self.positions: Embedding = Embedding(stack.num_positions, hidden)
        self.sum: Add = Add()
        self.layers: nn.ModuleList = nn.ModuleList(
            [_DecoderLayer(config, layer) for layer in range(stack.num_layers)]
        )
        self.pick: MergeRows = MergeRows()
        self.norm: LayerNorm = LayerNorm(hidden, config.norm_eps)

    def embed(self, ids: nn.Tensor, positions: nn.Tensor) -> nn.Tensor:
        return self.sum(self.tokens(ids), self.positions(positions))

    def project(self, x: nn.Tensor, order: nn.Tensor) -> nn.Tensor:
        return self.tokens.project(self.norm(self.pick(x, order)))


class _FeedForwardLayer(Module):
    """The last part of every layer."""

    def __init__(self, config: SpeechConfig, stack: SpeechStackConfig) -> None:
        super().__init__()
        hidden, inner = config.hidden_size, stack.intermediate_size
        self.norm: LayerNorm = LayerNorm(hidden, config.norm_eps)
        self.up: Linear = _linear(hidden, inner)
        self.activation: Gelu = Gelu()
        self.down: Linear = _linear(inner, hidden)
        self.sum: Add = Add()

    def feed_forward(self, x: nn.Tensor) -> nn.Tensor:
        return self.sum(x, self.activation.fused_mlp(self.norm(x), self.up, self.down))


class _EncoderLayer(_FeedForwardLayer):
    def __init__(self, config: SpeechConfig) -> None:
        super().__init__(config, config.encoder)
        self.attention: _WindowAttention = _WindowAttention(config)

    def forward(self, x: nn.Tensor, lengths: nn.Tensor) -> nn.Tensor:
        return self.feed_forward(self.attention(x, lengths))


class _DecoderLayer(_FeedForwardLayer):
    def __init__(self, config: SpeechConfig, layer: int) -> None:
        super().__init__(config, config.decoder)
        self.attention: _TokenAttention = _TokenAttention(config, layer)
        self.cross_attention: _CrossAttention = _CrossAttention(config, layer)


class _Attention(Module):
    """The matrices of attention with its norm and its residual."""

    def __init__(self, config: SpeechConfig) -> None:
        super().__init__()
        hidden = config.hidden_size
        self.norm: LayerNorm = LayerNorm(hidden, config.norm_eps)
        self.q: Linear = _linear(hidden, hidden)
        self.k: Linear = Linear(hidden, hidden, bias=False, out_dtype="float32")
        self.v: Linear = _linear(hidden, hidden)
        self.output: Linear = _linear(hidden, hidden)
        self.sum: Add = Add()


class _WindowAttention(_Attention):
    """Attention of a window's frames to one another."""

    def __init__(self, config: SpeechConfig) -> None:
        super().__init__(config)
        heads = config.encoder.num_heads
        self.attend: SplitAttention = SplitAttention(heads, _scale(config, heads))

    def forward(self, x: nn.Tensor, lengths: nn.Tensor) -> nn.Tensor:
        normed = self.norm(x)
        attended = self.attend(self.q(normed), self.k(normed), self.v(normed), lengths)
        return self.sum(x, self.output(attended))


class _SlotAttention(_Attention):
    def __init__(self, config: SpeechConfig, layer: int, *, sees_all: bool) -> None:
        super().__init__(config)
        heads = config.decoder.num_heads
        self.store: WriteSlots = WriteSlots(layer, heads)
        self.attend: AttendSlots = AttendSlots(
            layer, heads, _scale(config, heads), sees_all=sees_all
        )

    def write(self, x: nn.Tensor, rows: SlotRows, memory: nn.Tensor) -> nn.Tensor:
        return self.store(self.k(x), self.v(x), rows, memory)


class _TokenAttention(_SlotAttention):
    """Attention of tokens to those before them."""

    def __init__(self, config: SpeechConfig, layer: int) -> None:
        super().__init__(config, layer, sees_all=False)

    def forward(self, x: nn.Tensor, rows: SlotRows, memory: nn.Tensor) -> nn.Tensor:
        normed = self.norm(x)
        rows = rows._replace(slots=self.write(normed, rows, memory))
        return self.sum(x, self.output(self.attend(self.q(normed), rows, memory)))


class _CrossAttention(_SlotAttention):
    """Attention of tokens to the encoder's outputs, which `write` has stored."""

    def __init__(self, config: SpeechConfig, layer: int) -> None:
        super().__init__(config, layer, sees_all=True)

    def forward(self, x: nn.Tensor, window: SlotRows, memory: nn.Tensor) -> nn.Tensor:
        return self.sum(x, self.output(self.attend(self.q(self.norm(x)), window, memory)))


def _linear(inputs: int, outputs: int) -> Linear:
    return Linear(inputs, outputs, bias=True, out_dtype="float32")


def _scale(config: SpeechConfig, heads: int) -> float:
    return float((config.hidden_size // heads) ** -0.5)
