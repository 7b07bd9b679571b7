"""Tiny random Llama models, quantized as the checkpoints of other programs are."""

from __future__ import annotations

__all__ = ("write_dequantized", "write_quantized")

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.model.quantized_files import Quantizer
from tests.model.tiny_models import TINY_CONFIGS, write_model
from tests.model.weight_files import Array, write_raw_safetensors

HIDDEN, INNER = 128, 256
CONFIG: dict[str, Any] = TINY_CONFIGS["llama"] | {
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
}
_SHAPES = {
    "self_attn.q_proj": (HIDDEN, HIDDEN),
    "self_attn.k_proj": (HIDDEN // 2, HIDDEN),
    "self_attn.v_proj": (HIDDEN // 2, HIDDEN),
    "self_attn.o_proj": (HIDDEN, HIDDEN),
    "mlp.gate_proj": (INNER, HIDDEN),
    "mlp.up_proj": (INNER, HIDDEN),
    "mlp.down_proj": (HIDDEN, INNER),
}
_DTYPES = {
    "int32": "I32",
    "int64": "I64",
    "uint32": "U32",
    "int8": "I8",
    "uint8": "U8",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
}


def write_tensors(path: Path, tensors: Mapping[str, Array]) -> None:
    """Write a safetensors file."""
    header: dict[str, Any] = {}
    offset = 0
    for name, array in tensors.items():
        end = offset + array.nbytes
        dtype = _DTYPES[array.dtype.name]
        header[name] = {"dtype": dtype, "shape": array.shape, "data_offsets": [offset, end]}
        offset = end
    data = b"".join(np.ascontiguousarray(array).tobytes() for array in tensors.values())
    write_raw_safetensors(path, header, data)


def write_quantized(directory: Path, quantizer: Quantizer) -> dict[str, NDArray[np.float32]]:
    """Write a checkpoint with quantized layers and a float16 embedding and head.

    Returns:
        The weights that it means.
    """
    random = np.random.Generator(np.random.PCG64(11))
    tensors: dict[str, Array] = {}
    weights: dict[str, NDArray[np.float32]] = {}
    for name, shape in (("model.embed_tokens", (320, HIDDEN)), ("lm_head", (320, HIDDEN))):
        scale = 1.0 if "embed" in name else HIDDEN**-0.5
        tensors[f"{name}.weight"] = (scale * random.standard_normal(shape)).astype(np.float16)
    norms = ["model.norm"]
    for layer in range(CONFIG["num_hidden_layers"]):
        at = f"model.layers.{layer}"
        norms += [f"{at}.input_layernorm", f"{at}.post_attention_layernorm"]
        for part, shape in _SHAPES.items():
            values = random.standard_normal(shape).astype(np.float32) * np.float32(shape[1] ** -0.5)
            quantized = quantizer.apply(values, random)
            weights[f"{at}.{part}.weight"] = quantized.weights
            tensors |= {f"{at}.{part}.{name}": array for name, array in quantized.tensors.items()}
    for name in norms:
        tensors[f"{name}.weight"] = (1 + 0.1 * random.standard_normal(HIDDEN)).astype(np.float16)
    floats = {name: array for name, array in tensors.items() if array.dtype == np.float16}
    weights |= {
        name: array.astype(np.float32)
        for name, array in floats.items()
        if not name.endswith("scales")
    }
    _write(directory, tensors, CONFIG | {"quantization_config": dict(quantizer.config)})
    return weights


def write_dequantized(directory: Path, weights: Mapping[str, NDArray[np.float32]]) -> None:
    """Write the weights that a quantized checkpoint means."""
    _write(directory, weights, CONFIG)


def _write(directory: Path, tensors: Mapping[str, Array], config: Mapping[str, Any]) -> None:
    write_model(directory, "llama")
    (directory / "config.json").write_text(json.dumps(config))
    write_tensors(directory / "model.safetensors", tensors)
