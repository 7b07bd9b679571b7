"""The division of a decoder among shards (tensor parallelism).

Every shard has the same sizes: some of the heads, and some of the inner numbers of each
feed-forward layer. `models/parameters/` says which rows or columns of each matrix these are.
"""

from __future__ import annotations

__all__ = ("divided_layer", "require_divisible")

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from aiomlc.errors import BadRequestError
from aiomlc.models.config.layers import (
    AttentionConfig,
    DenseAndExpertsConfig,
    ExpertsConfig,
    FeedForwardConfig,
    LayerConfig,
    MlpConfig,
    RecurrentConfig,
)

_TILE_ROWS: Final = 16  # The matrices of an expert begin a tile.


def divided_layer(layer: LayerConfig, shards: int) -> LayerConfig:
    """Return the plan of a layer in one of the shards."""
    mixer = layer.mixer
    assert isinstance(mixer, AttentionConfig), "others are refused"
    return replace(
        layer,
        mixer=replace(
            mixer,
            num_heads=mixer.num_heads // shards,
            num_kv_heads=mixer.num_kv_heads // shards,
        ),
        feed_forward=_divided(layer.feed_forward, shards),
    )


def _divided(layer: FeedForwardConfig, shards: int) -> FeedForwardConfig:
    assert not isinstance(layer, DenseAndExpertsConfig), "these are refused"
    inner = layer.intermediate_size // shards
    if isinstance(layer, MlpConfig):
        return replace(layer, intermediate_size=inner)

    return replace(layer, intermediate_size=inner, shared_size=layer.shared_size // shards)


def require_divisible(layers: tuple[LayerConfig, ...], shards: int) -> None:
    """Require that layers can be divided among shards.

    Raises:
        BadRequestError: If they cannot; `param` is `tensor_parallel_shards`.
    """
    for index, layer in enumerate(layers):
        for problem in _problems(layer, shards):
            raise BadRequestError(
                f"engine_config.tensor_parallel_shards = {shards} is not possible for this model: "
                f"layer {index} {problem}; use 1",
                param="tensor_parallel_shards",
            )


def _problems(layer: LayerConfig, shards: int) -> Iterator[str]:
    if isinstance(layer.mixer, RecurrentConfig):
        yield "is recurrent, and its state is not divided"
        return

    if layer.mixer.qk_norm == "full_width":
        yield "has a norm over the queries of all heads"
    if layer.streams is not None:
        yield "has several residual streams"
    yield from _indivisible("num_attention_heads", layer.mixer.num_heads, shards)
    yield from _indivisible("num_key_value_heads", layer.mixer.num_kv_heads, shards)
    match layer.feed_forward:
        case DenseAndExpertsConfig():
            yield "has norms between its experts and their sum"
        case MlpConfig(intermediate_size=inner, sparsity=sparsity):
            if sparsity:
                yield "cuts gates off by their distribution"
            yield from _indivisible("intermediate_size", inner, shards)
        case ExpertsConfig(intermediate_size=inner, shared_size=shared):
            yield from _indivisible("moe_intermediate_size", inner, shards * _TILE_ROWS)
            yield from _indivisible("shared_expert_intermediate_size", shared, shards * _TILE_ROWS)


def _indivisible(name: str, value: int, divisor: int) -> Iterator[str]:
    if value % divisor:
        yield f"has {name} = {value}, which must be a multiple of {divisor}"
