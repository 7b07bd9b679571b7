"""Tiny models whose sizes can be divided, in one process and in several."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from aiomlc.config import EngineConfig
from aiomlc.runtime.native.model import NativeModel
from benchmarks.native_model import open_native_model
from tests.model.tiny_models import (
    TINY_CONFIGS,
    random_weights,
    write_model,
    write_safetensors,
)

Directory = Callable[..., Path]
OpenShards = Callable[..., NativeModel]
_SIZES = ("intermediate_size", "moe_intermediate_size", "shared_expert_intermediate_size")


@pytest.fixture(scope="session")
def divisible(model_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Directory:
    """Return a function that writes a tiny model whose inner sizes are multiples of 128."""
    root = tmp_path_factory.mktemp("divisible")

    def write(architecture: str, **changes: int) -> Path:
        directory = root / "_".join([architecture, *map(str, changes.values())])
        if not directory.exists():
            tiny = TINY_CONFIGS[architecture]
            sizes = {name: -(-tiny[name] // 128) * 128 for name in _SIZES if name in tiny}
            config = {**tiny, **sizes, **changes}
            write_model(directory, architecture)
            (directory / "config.json").write_text(json.dumps(config))
            write_safetensors(directory / "model.safetensors", random_weights(config, 7))
        return directory

    return write


@pytest.fixture
def open_shards(divisible: Directory) -> Iterator[OpenShards]:
    """Return a function that opens a model in a number of shards."""
    opened: list[NativeModel] = []

    def open_model(architecture: str | Path, count: int, **fields: Any) -> NativeModel:  # noqa: ANN401
        path = architecture if isinstance(architecture, Path) else divisible(architecture)
        config = EngineConfig(tensor_parallel_shards=count, num_threads=2, **fields)
        model = open_native_model(path, config).native
        opened.append(model)
        return model

    yield open_model
    for model in opened:
        if model.shards is not None:
            model.shards.close()
