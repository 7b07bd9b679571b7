"""The bundled model as a GGUF file."""

from __future__ import annotations

__all__ = ("write_pebble",)

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from numpy.typing import NDArray
from tokenizers import Tokenizer

from aiomlc.config import BUNDLED_MODEL
from aiomlc.weights.formats.mlc import read_mlc
from aiomlc.weights.formats.source import Source, SourceTensor
from tests.model.gguf_blocks import encoder
from tests.model.gguf_files import write_gguf
from tests.model.gguf_tokenizers import add_byte_level


def write_pebble(path: Path, kind: Type) -> Path:
    """Write the bundled model with matrices of a type, and return the path."""
    config = json.loads((BUNDLED_MODEL / "mlc-chat-config.json").read_text())
    text = json.loads((BUNDLED_MODEL / "tokenizer_config.json").read_text())
    model = config["model_config"] | {"model_type": "llama", "rope_theta": 10000.0}
    model["max_position_embeddings"] = config["context_window_size"]

    def add_text(writer: gguf.GGUFWriter) -> None:
        tokenizer = Tokenizer.from_file(str(BUNDLED_MODEL / "tokenizer.json"))
        add_byte_level(writer, tokenizer, "smollm", eos=text["eos_token"])
        writer.add_string("tokenizer.huggingface.json", tokenizer.to_str())
        writer.add_chat_template(text["chat_template"])
        writer.add_float32("general.sampling.temp", config["temperature"])
        writer.add_float32("general.sampling.top_p", config["top_p"])

    encode = encoder({"": kind})
    return write_gguf(path, model, _weights(model), add_text, encode)


def _weights(model: dict[str, Any]) -> dict[str, NDArray[np.float32]]:
    """Return the weights under the names of Hugging Face."""
    source = read_mlc(BUNDLED_MODEL)
    keys = model["num_key_value_heads"] * model["head_dim"]
    queries = model["num_attention_heads"] * model["head_dim"]
    parts = {
        "self_attn.qkv_proj": (("q_proj", queries), ("k_proj", keys), ("v_proj", keys)),
        "mlp.gate_up_proj": (
            ("gate_proj", model["intermediate_size"]),
            ("up_proj", model["intermediate_size"]),
        ),
    }
    weights: dict[str, NDArray[np.float32]] = {}
    for name, tensor in source.tensors.items():
        module, _, kind = name.rpartition(".")
        if kind == "weight":
            weights[name] = _read(tensor).astype(np.float32)
        if kind != "q_weight":
            continue

        matrix = _dequantize(source, module)
        prefix, _, last = module.rpartition(".")
        block, _, owner = prefix.rpartition(".")
        start = 0
        for part, rows in parts.get(f"{owner}.{last}", ((last, len(matrix)),)):
            target = f"{block}.{owner}.{part}" if f"{owner}.{last}" in parts else module
            weights[f"{target}.weight"] = matrix[start : start + rows]
            start += rows
    return weights


def _dequantize(source: Source, module: str) -> NDArray[np.float32]:
    words, scales = (_read(source.tensors[f"{module}.{part}"]) for part in ("q_weight", "q_scale"))
    nibbles = (words[:, :, None] >> (4 * np.arange(8, dtype=np.uint32))) & 0xF
    values = nibbles.reshape(len(words), -1).astype(np.float32) - 7
    return values * np.repeat(scales.astype(np.float32), 32, axis=1)


def _read(tensor: SourceTensor) -> NDArray[Any]:
    dtype = {"f16": np.float16, "f32": np.float32, "u32": np.uint32}[tensor.dtype]
    count = int(np.prod(tensor.shape))
    return np.fromfile(tensor.path, dtype, count, offset=tensor.offset).reshape(tensor.shape)
