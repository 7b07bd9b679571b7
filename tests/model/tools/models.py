"""Tiny models for the tests of the tools, and their expected output."""

from __future__ import annotations

__all__ = ("read_tensors", "write_tiny")

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.model import tiny_models
from tests.model.tiny_models import TINY_CONFIGS, tiny_weights, write_model, write_safetensors

# MLC LLM supports only mixtures in which each layer is sparse.
_SPARSE = {"decoder_sparse_step": 1, "mlp_only_layers": []}


def write_tiny(directory: Path, architecture: str, *, exact_vectors: bool = False) -> Path:
    """Write a tiny Hugging Face model; with `exact_vectors`, float16 holds its vectors exactly."""
    name = architecture.removesuffix("_sparse")
    if name == architecture:
        write_model(directory, architecture)
    else:
        with pytest.MonkeyPatch.context() as patch:
            configs: Mapping[str, Any] = {architecture: TINY_CONFIGS[name] | _SPARSE}
            patch.setattr(tiny_models, "TINY_CONFIGS", configs)
            write_model(directory, architecture)
    if exact_vectors:
        weights = {
            key: value.astype(np.float16).astype(np.float32) if value.ndim == 1 else value
            for key, value in tiny_weights(architecture).items()
        }
        write_safetensors(directory / "model.safetensors", weights)
    return directory


def read_tensors(directory: Path) -> dict[str, NDArray[Any]]:
    """Return the tensors of an MLC directory as they are stored; bfloat16 as uint16."""
    index = json.loads((directory / "tensor-cache.json").read_text())
    tensors = {}
    for shard in index["records"]:
        data = (directory / shard["dataPath"]).read_bytes()
        for record in shard["records"]:
            begin = record["byteOffset"]
            stored = data[begin : begin + record["nbytes"]]
            dtype = {"float32": "uint16", "bfloat16": "uint16"}.get(
                record["dtype"], record["dtype"]
            )
            tensors[record["name"]] = np.frombuffer(stored, dtype).reshape(record["shape"])
    return tensors
