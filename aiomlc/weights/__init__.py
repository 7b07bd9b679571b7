"""Model weights: read, quantize, pack, cache, and map into memory."""

from __future__ import annotations

from aiomlc.weights.cache import PackedWeights, prepare_weights
from aiomlc.weights.convert import Progress, map_weights

__all__ = ("PackedWeights", "Progress", "map_weights", "prepare_weights")
