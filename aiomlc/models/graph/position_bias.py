"""The biases of attention scores that a model has learned for ranges of distances."""

from __future__ import annotations

__all__ = ("BucketBias", "bucket_of_distances")

import math
from typing import TYPE_CHECKING

import numpy as np
from tvm import relax
from tvm.relax.frontend import nn

from aiomlc.models.config.encoder import PositionBuckets
from aiomlc.models.graph.layers import Embedding
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
