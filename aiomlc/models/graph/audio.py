"""The graph of an audio tower: log-mel frames in, rows of a decoder's embeddings out.

Rows are positions in time and frequency, or in time only. Several recordings are concatenated
without padding. A convolution is a matrix product of the rows that it reads.
"""

from __future__ import annotations

__all__ = ("AudioTower",)

from tvm.relax.frontend import nn

from aiomlc.models.config.audio import CONV_TAPS, AudioConfig
from aiomlc.models.graph.columns import PermuteColumns
from aiomlc.models.graph.layers import Gelu, Linear, Norm
from aiomlc.models.graph.module import Module
from aiomlc.models.graph.packed import MergeRows, PackedTokens, WeighRows
from aiomlc.models.graph.tower import TowerBlock, build_projector, tower_norm


class AudioTower(Module):
    """A tower with its projector. Its methods are the functions of the compiled library."""

    def __init__(self, config: AudioConfig) -> None:
        super().__init__()
        channels = config.conv_channels
        self.conv1: Linear = Linear(
            CONV_TAPS, channels, bias=True, out_dtype="float32", keep_float32=True
        )
        self.conv2: Linear = _convolution(channels)
        self.conv3: Linear = _convolution(channels)
        self.activation: Gelu = Gelu()
        self.weigh: WeighRows = WeighRows()
        self.merge: MergeRows = MergeRows()
        self.taps: PermuteColumns = _channels_first(channels, CONV_TAPS)
        bands = config.conv_bands[-1]
        self.bands: PermuteColumns = _channels_first(channels, bands)
        self.conv_out: Linear = Linear(
            bands * channels, config.hidden_size, bias=False, out_dtype="float32"
        )
        self.layers: nn.ModuleList = nn.ModuleList(
            [TowerBlock(config) for _ in range(config.num_hidden_layers)]
        )
        self.post_norm: Norm = tower_norm(config)
        self.projector: nn.ModuleList = build_projector(config.projector)

    def convolve(
        self,
        taps: nn.Tensor,
        weights1: nn.Tensor,
        order2: nn.Tensor,
        weights2: nn.Tensor,
        order3: nn.Tensor,
        order: nn.Tensor,
    ) -> nn.Tensor:
        """Return the states of positions in time, float32 `[m, hidden]`.

        Args:
            taps: What the first convolution reads for each output, float32 `[n, 9]`.
            weights1: 1 for its outputs, and 0 for a row of padding, float32 `[n, 1]`.
            order2: The rows that the second convolution reads for each output, int32 `[k, 9]`.
            weights2: As `weights1`, `[k, 1]`.
            order3: The rows that the third convolution reads for each output, int32 `[j, 9]`.
            order: The bands of each position in time, int32 `[m, bands]`.
        """
        x = self.weigh(self.activation(self.conv1(taps)), weights1)
        x = self.weigh(self.activation(self.conv2(self.taps(self.merge(x, order2)))), weights2)
        x = self.activation(self.conv3(self.taps(self.merge(x, order3))))
        return self.conv_out(self.bands(self.merge(x, order)))

    def encode(self, states: nn.Tensor, positions: nn.Tensor, lengths: nn.Tensor) -> nn.Tensor:
        """Return rows in place of token embeddings, float32 `[n, embedded size]`.

        Args:
            states: The outputs of `convolve` with their positions added, float32 `[n, hidden]`.
            positions: Of each row in its window, int32 `[n]`.
            lengths: Rows of each window, int32 `[b]`.
        """
        x, tokens = states, PackedTokens(positions, lengths)
        for layer in self.layers:
            x = layer(x, tokens)
        x = self.post_norm(x)
        for step in self.projector:
            x = step(x, positions)
        return x


def _convolution(channels: int) -> Linear:
    return Linear(CONV_TAPS * channels, channels, bias=True, out_dtype="float32")


def _channels_first(channels: int, count: int) -> PermuteColumns:
    """Return the order of a checkpoint's columns: the numbers of a channel are neighbors."""
    return PermuteColumns(
        [row * channels + channel for channel in range(channels) for row in range(count)]
    )
