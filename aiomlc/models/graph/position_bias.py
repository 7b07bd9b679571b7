"""The biases of attention scores, or the vectors, that a model has learned for distances."""

from __future__ import annotations

__all__ = ("BucketBias", "RelativeVectors", "bucket_of_distances", "relative_positions")

import math
from typing import TYPE_CHECKING

import numpy as np
from tvm import relax
from tvm.relax.frontend import nn

from aiomlc.models.config.encoder import PositionBuckets, RelativePositions
from aiomlc.models.graph.layers import Embedding, LayerNorm
from aiomlc.models.graph.module import Module

if TYPE_CHECKING:
    from numpy.typing import NDArray


class BucketBias(Module):
    """A row of a table for each distance: float32 `[2 * longest - 1, heads]`.

    Args:
        longest: The tokens of the longest input.
    """

    def __init__(self, config: PositionBuckets, heads: int, longest: int) -> None:
        super().__init__()
        self.table: Embedding = Embedding(config.num_buckets, heads, keep_float32=True)
        self.buckets: NDArray[np.int32] = bucket_of_distances(config, longest)

    def forward(self) -> nn.Tensor:
        return self.table(nn.Tensor(_expr=relax.const(self.buckets)))


def bucket_of_distances(config: PositionBuckets, longest: int) -> NDArray[np.int32]:
    """Return the bucket of each position of a key less that of the query, from `1 - longest` on.

    The logarithms are float32, as in transformers, because rounding decides at powers of 2.
    """
    half = config.num_buckets // 2
    exact = half // 2
    distances = np.arange(1 - longest, longest)
    sizes = np.abs(distances)
    growth = np.log(np.maximum(sizes, exact).astype(np.float32) / np.float32(exact))
    growth = growth / np.float32(math.log(config.max_distance / exact)) * np.float32(half - exact)
    large = np.minimum(exact + growth.astype(np.int64), half - 1)
    buckets = np.where(sizes < exact, sizes, large) + np.where(distances > 0, half, 0)
    return buckets.astype(np.int32)


class RelativeVectors(Module):
    """The vectors of relative positions: float32 `[2 * count, hidden]`."""

    def __init__(self, config: RelativePositions, hidden: int, eps: float) -> None:
        super().__init__()
        rows = 2 * config.count
        self.table: Embedding = Embedding(rows, hidden, keep_float32=True)
        self.norm: LayerNorm | None = LayerNorm(hidden, eps) if config.has_norm else None
        self.ids: NDArray[np.int32] = np.arange(rows, dtype=np.int32)

    def forward(self) -> nn.Tensor:
        x = self.table(nn.Tensor(_expr=relax.const(self.ids)))
        return x if self.norm is None else self.norm(x)


def relative_positions(config: RelativePositions, longest: int) -> NDArray[np.int32]:
    """Return the row of `RelativeVectors` for each position of a query less that of a key, from
    `1 - longest` on.

    The logarithms are float32, as in transformers.
    """
    distances = np.arange(1 - longest, longest)
    if config.max_distance:
        half = config.count // 2
        sizes = np.maximum(np.abs(distances), half).astype(np.float32) / np.float32(half)
        whole = np.log(np.array([(config.max_distance - 1) / half], np.float32))
        shares = np.ceil(np.log(sizes) / whole * np.float32(half - 1)).astype(np.int64)
        distances = np.where(
            np.abs(distances) <= half, distances, np.sign(distances) * (half + shares)
        )
    return np.clip(distances + config.count, 0, 2 * config.count - 1).astype(np.int32)
