"""Export of the trained weights as an MLC model directory and as a Hugging Face directory."""

from __future__ import annotations

__all__ = ("export_hugging_face", "export_mlc", "read_mlc")

import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file

from training.dialogues.records import JsonObject
from training.dialogues.template import CHAT_TEMPLATE
from training.model import Shape, Weights
from training.tokenizer import END, PAD, load_tokenizer, token_id

_GROUP_SIZE = 32
_MAX_LEVEL = 7
_NIBBLES = 8  # Per uint32 word.
_SHARD = "params_shard_0.bin"
_SAMPLING: JsonObject = {"temperature": 0.3, "top_p": 0.95, "repetition_penalty": 1.0}


def _quantize(weight: NDArray[np.float32]) -> tuple[NDArray[np.uint32], NDArray[np.float16]]:
    """Return q4f16_1 words [rows, columns / 8] and scales [rows, columns / 32]."""
    rows, columns = weight.shape
    groups = weight.reshape(rows, columns // _GROUP_SIZE, _GROUP_SIZE)
    scale = (np.abs(groups).max(-1, keepdims=True) / np.float32(_MAX_LEVEL)).astype(np.float16)
    divisor = np.maximum(scale.astype(np.float32), np.float32(1e-12))
    levels = np.clip(np.round(groups / divisor + _MAX_LEVEL), 0, 2 * _MAX_LEVEL).astype(np.uint32)
    nibbles = levels.reshape(rows, columns // _NIBBLES, _NIBBLES)
    shifts = np.arange(_NIBBLES, dtype=np.uint32) * 4
    words = np.bitwise_or.reduce(nibbles << shifts, axis=-1)
    return words.astype("<u4"), scale[..., 0]


def _dequantize(words: NDArray[np.uint32], scale: NDArray[np.float16]) -> NDArray[np.float32]:
    shifts = np.arange(_NIBBLES, dtype=np.uint32) * 4
    levels = ((words[..., None] >> shifts) & 15).reshape(len(words), -1).astype(
        np.float32
    ) - _MAX_LEVEL
    return levels * np.repeat(scale.astype(np.float32), _GROUP_SIZE, axis=1)


def _matrices(weights: Weights, shape: Shape) -> Iterator[tuple[str, NDArray[np.float32]]]:
    def concatenated(*names: str) -> NDArray[np.float32]:
        array: NDArray[np.float32] = torch.cat(
            [weights[f"{name}.weight"] for name in names]
        ).numpy()
        return array

    yield "model.embed_tokens", concatenated("model.embed_tokens")
    for index in range(shape.layers):
        attention, mlp = f"model.layers.{index}.self_attn.", f"model.layers.{index}.mlp."
        yield attention + "qkv_proj", concatenated(*(f"{attention}{part}_proj" for part in "qkv"))
        yield attention + "o_proj", concatenated(attention + "o_proj")
        yield mlp + "gate_up_proj", concatenated(mlp + "gate_proj", mlp + "up_proj")
        yield mlp + "down_proj", concatenated(mlp + "down_proj")


def _parameters(weights: Weights, shape: Shape) -> Iterator[tuple[str, NDArray[np.generic]]]:
    for name, matrix in _matrices(weights, shape):
        words, scale = _quantize(matrix)
        yield name + ".q_weight", words
        yield name + ".q_scale", scale
    for name, weight in weights.items():
        if weight.ndim == 1:
            yield name, weight.numpy().astype(np.float16)


def _write_shard(directory: Path, weights: Weights, shape: Shape) -> None:
    records, blob = [], bytearray()
    for name, array in _parameters(weights, shape):
        data = array.tobytes()
        records.append(
            {
                "name": name,
                "shape": list(array.shape),
                "dtype": str(array.dtype),
                "format": "raw",
                "nbytes": len(data),
                "byteOffset": len(blob),
            }
        )
        blob += data
    (directory / _SHARD).write_bytes(blob)
    parameters = sum(weight.numel() for weight in weights.values())
    shard = {
        "dataPath": _SHARD,
        "format": "raw-shard",
        "nbytes": len(blob),
        "records": records,
        "md5sum": hashlib.md5(blob).hexdigest(),
    }
    metadata = {
        "ParamSize": len(records),
        "ParamBytes": float(len(blob)),
        "BitsPerParam": round(len(blob) * 8 / parameters, 4),
    }
    _write_json(directory / "tensor-cache.json", {"metadata": metadata, "records": [shard]})


def _write_json(path: Path, document: JsonObject) -> None:
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _write_tokenizer(directory: Path, tokenizer_file: Path, shape: Shape) -> dict[str, int]:
    shutil.copyfile(tokenizer_file, directory / "tokenizer.json")
    tokenizer = load_tokenizer(tokenizer_file)
    document: JsonObject = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_bos_token": False,
        "add_prefix_space": False,
        "bos_token": None,
        "clean_up_tokenization_spaces": False,
        "eos_token": END,
        "pad_token": PAD,
        "unk_token": None,
        "model_max_length": shape.context,
        "chat_template": CHAT_TEMPLATE,
    }
    _write_json(directory / "tokenizer_config.json", document)
    return {token: token_id(tokenizer, token) for token in (END, PAD)}


def read_mlc(directory: Path, shape: Shape) -> Weights:
    """Read the weights that `export_mlc` wrote, dequantized, under Hugging Face's names."""
    index = json.loads((directory / "tensor-cache.json").read_text(encoding="utf-8"))
    blob = (directory / _SHARD).read_bytes()
    arrays: dict[str, NDArray[Any]] = {}
    for record in index["records"][0]["records"]:
        data = blob[record["byteOffset"] : record["byteOffset"] + record["nbytes"]]
        arrays[record["name"]] = np.frombuffer(data, record["dtype"]).reshape(record["shape"])
    weights: Weights = {}
    for name, array in arrays.items():
        stem, _, kind = name.rpartition(".")
        if kind == "q_weight":
            fused = torch.from_numpy(_dequantize(array, arrays[stem + ".q_scale"]))
            parts = _parts(stem, shape)
            for part, matrix in zip(parts, fused.split([*parts.values()]), strict=True):
                weights[part + ".weight"] = matrix.clone()
        elif kind != "q_scale":
            weights[name] = torch.from_numpy(array.astype(np.float32))
    return weights


def _parts(stem: str, shape: Shape) -> dict[str, int]:
    """Return the matrices that are fused in `stem`, and their rows."""
    prefix, _, name = stem.rpartition(".")
    if name == "qkv_proj":
        rows, kv_rows = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        return {f"{prefix}.{p}_proj": rows if p == "q" else kv_rows for p in "qkv"}
    if name == "gate_up_proj":
        return {f"{prefix}.{part}_proj": shape.intermediate for part in ("gate", "up")}
    return {stem: shape.vocab if name == "embed_tokens" else shape.hidden}


def _mlc_model_config(shape: Shape) -> JsonObject:
    return {
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_attention_heads": shape.heads,
        "num_hidden_layers": shape.layers,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "rms_norm_eps": shape.norm_eps,
        "vocab_size": shape.vocab,
        "tie_word_embeddings": True,
        "position_embedding_base": int(shape.rope_theta),
        "context_window_size": shape.context,
        "prefill_chunk_size": shape.context,
        "tensor_parallel_shards": 1,
        "max_batch_size": 128,
    }


def export_mlc(directory: Path, weights: Weights, shape: Shape, tokenizer_file: Path) -> None:
    """Write an MLC model directory, quantized to q4f16_1."""
    directory.mkdir(parents=True, exist_ok=True)
    plain = {name: weight.detach().float() for name, weight in weights.items()}
    _write_shard(directory, plain, shape)
    ids = _write_tokenizer(directory, tokenizer_file, shape)
    document: JsonObject = {
        "version": "0.1.0",
        "model_type": "llama",
        "quantization": "q4f16_1",
        "model_config": _mlc_model_config(shape),
        "vocab_size": shape.vocab,
        "active_vocab_size": shape.vocab,
        "context_window_size": shape.context,
        "sliding_window_size": -1,
        "prefill_chunk_size": shape.context,
        "attention_sink_size": -1,
        "tensor_parallel_shards": 1,
        "pipeline_parallel_stages": 1,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        **_SAMPLING,
        "tokenizer_files": ["tokenizer.json", "tokenizer_config.json"],
        "tokenizer_info": {
            "token_postproc_method": "byte_level",
            "prepend_space_in_encode": False,
            "strip_space_in_decode": False,
        },
        "pad_token_id": ids[PAD],
        "eos_token_id": ids[END],
        "model_task": "chat",
    }
    _write_json(directory / "mlc-chat-config.json", document)


def export_hugging_face(
    directory: Path, weights: Weights, shape: Shape, tokenizer_file: Path
) -> None:
    """Write a Hugging Face directory with the weights rounded to q4f16_1."""
    directory.mkdir(parents=True, exist_ok=True)
    ids = _write_tokenizer(directory, tokenizer_file, shape)
    tensors = {}
    for name, weight in weights.items():
        plain = weight.detach().float()
        if plain.ndim == 1:
            tensors[name] = plain.half().float()
        else:
            tensors[name] = torch.from_numpy(_dequantize(*_quantize(plain.numpy())))
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    document: JsonObject = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_attention_heads": shape.heads,
        "num_hidden_layers": shape.layers,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "rms_norm_eps": shape.norm_eps,
        "vocab_size": shape.vocab,
        "max_position_embeddings": shape.context,
        "rope_theta": shape.rope_theta,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
        "bos_token_id": None,
        "eos_token_id": ids[END],
        "pad_token_id": ids[PAD],
    }
    _write_json(directory / "config.json", document)
    sampling = {"do_sample": True, **_SAMPLING, "eos_token_id": ids[END], "pad_token_id": ids[PAD]}
    _write_json(directory / "generation_config.json", sampling)
