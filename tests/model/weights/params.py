"""Parameters and weights of a tiny model, their conversion, and the expected packed bytes."""

from __future__ import annotations

__all__ = (
    "HIDDEN",
    "ROWS",
    "Params",
    "entries",
    "expected",
    "make_params",
    "make_weights",
    "map_all",
    "merge_qkv",
    "prepare",
)

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiomlc.gguf.directory import ConfigFiles
from aiomlc.weights import PackedWeights, Progress, map_weights, prepare_weights
from aiomlc.weights.formats.directory import read_source
from tests.model.weight_files import Array, load, pack, store

# 80 is not a multiple of 32 and 40 not a multiple of 16, so that every kind of padding occurs.
HIDDEN, ROWS = 80, 40
QKV_PARTS = ("q_proj", "k_proj", "v_proj")
QKV_ROWS = (24, 9, 7)

Params = list[dict[str, Any]]


def make_params(weight_format: str) -> Params:
    """Return the metadata of the parameters, with matrices in `weight_format`."""
    qkv = [f"layer.{part}.weight" for part in QKV_PARTS]
    return [
        {"name": "embed", "kind": "matrix", "layout": [[weight_format, ROWS]],
         "shape": [ROWS, HIDDEN], "sources": ["embed.weight"]},
        {"name": "layer.qkv_proj", "kind": "matrix", "layout": [[weight_format, ROWS]],
         "shape": [ROWS, HIDDEN], "sources": qkv},
        {"name": "layer.qkv_proj.bias", "kind": "vector", "layout": [], "shape": [ROWS],
         "sources": [name.replace("weight", "bias") for name in qkv]},
        {"name": "norm.weight", "kind": "vector", "layout": [], "shape": [HIDDEN],
         "sources": ["norm.weight"]},
    ]  # fmt: skip


def make_weights(dtype: str, seed: int = 0) -> dict[str, tuple[str, Array]]:
    """Return the tensors for `make_params`, with a group of zeros, one of tiny values, and ties."""
    random = np.random.default_rng(seed)
    embed = random.normal(0, 0.05, (ROWS, HIDDEN)).astype(np.float32)
    embed[3, 32:64] = 0
    embed[4, :32] = 1e-9
    embed[5, :32] = np.linspace(-3.5, 3.5, 32, dtype=np.float32)
    embed[6, :32] = np.arange(32, dtype=np.float32) * 0.5 - 7
    tensors = {"embed.weight": (dtype, store(embed, dtype))}
    for part, rows in zip(QKV_PARTS, QKV_ROWS, strict=True):
        weight = random.normal(0, 1, (rows, HIDDEN))
        tensors[f"layer.{part}.weight"] = (dtype, store(weight, dtype))
        tensors[f"layer.{part}.bias"] = (dtype, store(random.normal(0, 1, rows), dtype))

    tensors["norm.weight"] = (dtype, store(random.normal(1, 0.1, HIDDEN), dtype))
    return tensors


def merge_qkv(tensors: Mapping[str, tuple[str, Array]], kind: str) -> NDArray[np.float32]:
    """Return the fused QKV weight or bias as float32."""
    return np.concatenate([load(tensors[f"layer.{part}.{kind}"][1]) for part in QKV_PARTS])


def expected(tensors: Mapping[str, tuple[str, Array]], weight_format: str) -> list[bytes]:
    """Return the expected packed bytes of each parameter."""
    return [
        pack(load(tensors["embed.weight"][1]), weight_format),
        pack(merge_qkv(tensors, "weight"), weight_format),
        merge_qkv(tensors, "bias").tobytes(),
        load(tensors["norm.weight"][1]).tobytes(),
    ]


def map_all(weights: PackedWeights) -> list[Array]:
    """Map the packed parameters and return them as arrays."""
    tensors = map_weights(weights.path, weights.nbytes, weights.params)
    return [np.from_dlpack(tensor) for tensor in tensors]


async def prepare(
    model: Path,
    params: Params,
    *,
    num_threads: int = 2,
    on_progress: Callable[[Progress], object] | None = None,
) -> PackedWeights:
    """Prepare the weights, with the cache of the fixture `model`."""
    return await prepare_weights(
        read_source(ConfigFiles(model)),
        params,
        quantization="q4f16_1",
        num_threads=num_threads,
        on_progress=on_progress,
    )


def entries(model: Path) -> list[str]:
    """Return the names of the cache entries, hidden ones included."""
    cache = model.parent / "home" / "weights"
    return sorted(item.name for item in cache.iterdir()) if cache.exists() else []
