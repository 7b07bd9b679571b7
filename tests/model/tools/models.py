"""Tiny models for the tests of the tools, and their expected output."""

from __future__ import annotations

__all__ = ("FP8_BLOCK", "check_md5", "checksums", "read_tensors", "write_fp8_blocks", "write_tiny")

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from tests.model import tiny_models
from tests.model.quantized_files import fp8
from tests.model.quantized_models import write_tensors
from tests.model.tiny_models import (
    TINY_CONFIGS,
    random_weights,
    tiny_weights,
    write_model,
    write_safetensors,
)

FP8_BLOCK = (32, 64)  #: Outputs and inputs that share a scale; some blocks are not complete.
_STORED_AS = {
    "float32": "uint16",
    "bfloat16": "uint16",
    "float8_e4m3fn": "uint8",
    "float8_e5m2": "uint8",
}
_FLOAT_MATRICES = ("model.embed_tokens.weight", "lm_head.weight", ".mlp.gate.weight")
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


def write_fp8_blocks(
    directory: Path,
    architecture: str,
    scale_dtype: Any,  # noqa: ANN401 - a dtype.
    block: tuple[int, int] = FP8_BLOCK,
) -> Path:
    """Write a tiny Hugging Face model as Qwen publishes its models in FP8."""
    path = write_tiny(directory, architecture) / "config.json"
    config = json.loads(path.read_text())
    tensors: dict[str, NDArray[Any]] = {}
    random = np.random.default_rng(0)
    for name, weight in random_weights(config, seed=5).items():
        if weight.ndim == 1 or name.endswith(_FLOAT_MATRICES):
            tensors[name] = weight.astype(ml_dtypes.bfloat16)
            continue

        stored = fp8(weight, random, block=block, scale_name="weight_scale_inv").tensors
        tensors[name] = stored["weight"]
        tensors[f"{name}_scale_inv"] = stored["weight_scale_inv"].astype(scale_dtype)
    write_tensors(directory / "model.safetensors", tensors)
    quantization = {
        "activation_scheme": "dynamic",
        "fmt": "e4m3",
        "quant_method": "fp8",
        "weight_block_size": list(block),
    }
    path.write_text(json.dumps(config | {"quantization_config": quantization}))
    return directory


def checksums(directory: Path) -> dict[str, str]:
    """Return the MD5 checksum of each file."""
    return {
        path.name: hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()
        for path in directory.iterdir()
    }


def check_md5(directory: Path) -> None:
    """Require that the index of an MLC directory has the MD5 checksums of its shards."""
    index = json.loads((directory / "tensor-cache.json").read_text())
    expected = {shard["dataPath"]: shard["md5sum"] for shard in index["records"]}
    actual = checksums(directory)
    assert expected == {name: actual[name] for name in expected}


def read_tensors(directory: Path) -> dict[str, NDArray[Any]]:
    """Return the tensors of an MLC directory as they are stored; bfloat16 as uint16, FP8 as
    uint8."""
    index = json.loads((directory / "tensor-cache.json").read_text())
    tensors = {}
    for shard in index["records"]:
        data = (directory / shard["dataPath"]).read_bytes()
        for record in shard["records"]:
            begin = record["byteOffset"]
            stored = data[begin : begin + record["nbytes"]]
            dtype = _STORED_AS.get(record["dtype"], record["dtype"])
            tensors[record["name"]] = np.frombuffer(stored, dtype).reshape(record["shape"])
    return tensors
