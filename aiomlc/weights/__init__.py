"""From a model directory to parameters in memory: read, quantise, pack, cache, map."""

from aiomlc.weights.cache import PackedWeights, prepare_weights
from aiomlc.weights.convert import Progress, map_weights

__all__ = ("PackedWeights", "Progress", "map_weights", "prepare_weights")
