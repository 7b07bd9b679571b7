"""The layers of encoders that read all tokens of an input, without a KV cache."""

from __future__ import annotations

__all__ = (
    "AlibiAttention",
    "BiasedAttention",
    "DisentangledAttention",
    "MeanRows",
    "MergeRows",
    "PackedAttention",
    "PackedTokens",
    "PickRows",
    "PoolRows",
    "PositionTiles",
    "Relu",
    "Standardize",
    "UnitNorm",
    "WeighRows",
)

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from tvm.relax.frontend import nn

from aiomlc.models.config.layers import AttentionConfig
from aiomlc.models.graph.module import Module

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class PackedTokens(NamedTuple):
    """The tokens of an encoder's inputs, which are concatenated without padding."""

    positions: nn.Tensor  #: Position of each token in its input, int32 `[n]`.
    lengths: nn.Tensor  #: Tokens of each input, int32 `[b]`.
    #: Numbers added to attention scores, float32 `[2 * distances - 1, heads]`: by the position of
    #: the key less that of the query, from `1 - distances` on.
    biases: nn.Tensor | None = None
    position_tiles: nn.Tensor | None = None  #: See `PositionTiles`.


class PackedAttention(Module):
    """Attention of the tokens of each input to one another, without a KV cache.

    Args:
        plan: What to compute. A window has as many tokens on either side of the current one.
        is_causal: Whether a token sees no token after it.
    """

    def __init__(self, plan: AttentionConfig, *, is_causal: bool) -> None:
        super().__init__()
        self.plan = plan
        self.is_causal = is_causal

    def forward(
        self, qkv: nn.Tensor, tokens: PackedTokens, sink_scores: nn.Tensor | None = None
    ) -> nn.Tensor:
        """Return `[n, heads * d]` for fused qkv `[n, (heads + 2 * kv_heads) * d]`."""
        raise NotImplementedError("encoders are not supported on this target")


class BiasedAttention(Module):
    """Attention of each token to all of its input, with the biases of the tokens."""

    def __init__(self, plan: AttentionConfig) -> None:
        super().__init__()
        self.plan = plan

    def forward(self, qkv: nn.Tensor, tokens: PackedTokens) -> nn.Tensor:
        """Return `[n, heads * d]` for fused qkv `[n, (heads + 2 * kv_heads) * d]`."""
        raise NotImplementedError("encoders are not supported on this target")


class AlibiAttention(Module):
    """Attention of each token to all of its input, with scores that fall with the distance."""

    def __init__(self, plan: AttentionConfig, slopes: tuple[float, ...]) -> None:
        super().__init__()
        self.plan = plan
        self.slopes = slopes

    def forward(self, qkv: nn.Tensor, tokens: PackedTokens) -> nn.Tensor:
        """Return `[n, heads * d]` for fused qkv `[n, (heads + 2 * kv_heads) * d]`."""
        raise NotImplementedError("encoders are not supported on this target")


class PositionTiles(Module):
    """The queries and keys of relative positions in all layers, as `DisentangledAttention` reads
    them: float32 `[layers, 2, heads, tiles, d, 16]`, where the last axis is that of positions."""

    def __init__(self, plan: AttentionConfig) -> None:
        super().__init__()
        self.plan = plan

    def forward(self, layers: Sequence[nn.Tensor]) -> nn.Tensor:
        """Return the tiles of `[positions, columns]` of each layer, the first columns of which are
        queries and keys."""
        raise NotImplementedError("encoders are not supported on this target")


class DisentangledAttention(Module):
    """Attention of each token to all of its input, whose scores have products with relative
    positions, too.

    Args:
        plan: What to compute.
        layer: Its tiles among those of the tokens.
        relative: The relative position of each distance, int32 `[2 * distances - 1]`: of a query
            less that of the key, from `1 - distances` on.
    """

    def __init__(self, plan: AttentionConfig, layer: int, relative: NDArray[np.int32]) -> None:
        super().__init__()
        self.plan = plan
        self.layer = layer
        self.relative = relative

    def forward(self, qkv: nn.Tensor, tokens: PackedTokens) -> nn.Tensor:
        """Return `[n, heads * d]` for fused qkv `[n, 3 * heads * d]`."""
        raise NotImplementedError("encoders are not supported on this target")


class Relu(Module):
    """`max(x, 0)`, of the few rows of a classifier's head."""

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        raise NotImplementedError("encoders are not supported on this target")


class PickRows(Module):
    """The first row of each input, or the last one: `[n, size]` to `[b, size]`."""

    def __init__(self, end: Literal["first", "last"]) -> None:
        super().__init__()
        self.end = end

    def forward(self, x: nn.Tensor, lengths: nn.Tensor) -> nn.Tensor:
        raise NotImplementedError("encoders are not supported on this target")


class MergeRows(Module):
    """Rows of `[n, size]` by the indices `[m, count]`, joined: `[m, count * size]`."""

    def forward(self, x: nn.Tensor, order: nn.Tensor) -> nn.Tensor:
        raise NotImplementedError("encoders are not supported on this target")


class PoolRows(Module):
    """The mean of the rows of `[n, size]` with the indices `[m, count]`: `[m, size]`."""

    def forward(self, x: nn.Tensor, order: nn.Tensor) -> nn.Tensor:
        raise NotImplementedError("encoders are not supported on this target")


class Standardize(Module):
    """Rows minus a stored one, times another."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.bias: nn.Parameter = nn.Parameter((size,), "float32")
        self.scale: nn.Parameter = nn.Parameter((size,), "float32")

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        raise NotImplementedError("vision towers are not supported on this target")


class UnitNorm(Module):
    """RMSNorm without weights."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.size = size
        self.eps = eps

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        raise NotImplementedError("vision towers are not supported on this target")


class WeighRows(Module):
    """Sums of rows `[n * taps, size]`, weighed by `[n, taps]`: `[n, size]`."""

    def forward(self, x: nn.Tensor, weights: nn.Tensor) -> nn.Tensor:
        raise NotImplementedError("encoders are not supported on this target")


class MeanRows(Module):
    """The mean of the rows of each input: `[n, size]` to `[b, size]`."""

    def forward(self, x: nn.Tensor, lengths: nn.Tensor) -> nn.Tensor:
        raise NotImplementedError("encoders are not supported on this target")
