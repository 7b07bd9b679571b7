"""The `config.json` that a GGUF file was made from, as far as the decoder needs it."""

from __future__ import annotations

__all__ = ("EMBEDDING", "HEAD", "ModelConfigFields", "config_fields")

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from weakref import WeakKeyDictionary

from aiomlc.gguf.architectures import Architecture, find_architecture
from aiomlc.gguf.container import tensor_error
from aiomlc.gguf.model import GGUFModel
from aiomlc.gguf.rope import rope_fields

EMBEDDING: Final = "token_embd.weight"
HEAD: Final = "output.weight"

_SIZES = {
    "hidden_size": "embedding_length",
    "num_hidden_layers": "block_count",
    "max_position_embeddings": "context_length",
}
_HEADS = "attention.head_count"
_KEY_VALUE_HEADS = "attention.head_count_kv"
_HEAD_SIZES = ("attention.key_length", "attention.value_length")
_DENSE = re.compile(r"blk\.(\d{1,6})\.ffn_up\.weight", re.ASCII)
_FEED_FORWARD = "feed_forward_length"


@dataclass(frozen=True, slots=True)
class ModelConfigFields:
    """The fields of a `config.json`, and for each what the GGUF file calls it."""

    values: Mapping[str, Any]
    names: Mapping[str, str]
    tensors: Mapping[str, Path]  #: The files of those of the names that are names of tensors.


_known: WeakKeyDictionary[GGUFModel, ModelConfigFields] = WeakKeyDictionary()


def config_fields(model: GGUFModel) -> ModelConfigFields:
    """Return the fields that a family's reader of Hugging Face configs expects.

    They give the same decoder as the original `config.json`, except for the order of rows and the
    offset of norms (`aiomlc/models/config/checkpoint.py`).

    Raises:
        ModelLoadError: If the architecture is unknown, or a key is missing or invalid.
    """
    fields = _known.get(model)
    if fields is None:
        fields = _known[model] = _read_fields(model)

    return fields


def _read_fields(model: GGUFModel) -> ModelConfigFields:
    architecture = find_architecture(model)
    names = _names(model, architecture)
    values: dict[str, Any] = {"model_type": architecture.model_type, **_sizes(model, architecture)}
    norm_eps, suffix = architecture.norm_eps
    values[norm_eps] = model.metadata.number(model.key(suffix))
    values |= {**architecture.constants, **_optional(model, architecture)}
    rope, rope_names = rope_fields(model, values["head_dim"], values["max_position_embeddings"])
    values |= rope
    if values.get("num_experts"):
        values["mlp_only_layers"] = _dense_layers(model)
    if architecture.extra is not None:
        values |= architecture.extra(model, values)
    names |= rope_names
    files = {name: model.tensors[name].path for name in names.values() if name in model.tensors}
    return ModelConfigFields(values, names, files)


def _names(model: GGUFModel, architecture: Architecture) -> dict[str, str]:
    suffixes = {
        **_SIZES,
        **dict([architecture.norm_eps]),
        **architecture.integers,
        **architecture.numbers,
        **architecture.booleans,
        "num_attention_heads": _HEADS,
        "num_key_value_heads": _KEY_VALUE_HEADS,
        "head_dim": _HEAD_SIZES[0],
        "intermediate_size": _FEED_FORWARD,
    }
    names = {field: model.key(suffix) for field, suffix in suffixes.items()}
    names |= {field: f"blk.0.{tensor}" for field, tensor in architecture.tensors.items()}
    return names | {"vocab_size": EMBEDDING, "tie_word_embeddings": HEAD}


def _sizes(model: GGUFModel, architecture: Architecture) -> dict[str, Any]:
    metadata = model.metadata
    values: dict[str, Any] = {
        field: metadata.integer(model.key(suffix)) for field, suffix in _SIZES.items()
    }
    heads = metadata.uniform_integer(model.key(_HEADS))
    key = model.key(_KEY_VALUE_HEADS)
    if architecture.recurrent_type and isinstance(metadata.value(key), list):
        counts = metadata.integers(key)
        kv_heads = metadata.uniform_integer(key, ignored=0)
        kinds = ("full_attention", architecture.recurrent_type)
        values["layer_types"] = [kinds[count == 0] for count in counts]
    elif architecture.has_unequal_layers:
        return values | {
            "num_attention_heads": heads,
            "head_dim": _head_dim(model, values["hidden_size"], heads),
            "vocab_size": _vocab_size(model),
            "tie_word_embeddings": HEAD not in model.tensors,
        }
    else:
        kv_heads = metadata.uniform_integer(key, heads)
    return values | {
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": _head_dim(model, values["hidden_size"], heads),
        "intermediate_size": metadata.uniform_integer(model.key(_FEED_FORWARD)),
        "vocab_size": _vocab_size(model),
        "tie_word_embeddings": HEAD not in model.tensors,
    }


def _head_dim(model: GGUFModel, hidden: int, heads: int) -> int:
    metadata = model.metadata
    if heads < 1:
        raise metadata.error(model.key(_HEADS), f"must be >= 1, got {heads}")

    default = hidden // heads if hidden % heads == 0 else None
    key, value = (metadata.integer(model.key(suffix), default) for suffix in _HEAD_SIZES)
    if key != value:
        problem = f"must equal {_HEAD_SIZES[0]} ({key}), got {value}"
        raise metadata.error(model.key(_HEAD_SIZES[1]), problem)

    if key < 2:
        raise metadata.error(model.key(_HEAD_SIZES[0]), f"must be >= 2, got {key}")

    return key


def _vocab_size(model: GGUFModel) -> int:
    embedding = model.tensors.get(EMBEDDING)
    if embedding is None or len(embedding.shape) != 2:
        path = model.path if embedding is None else embedding.path
        got = "none" if embedding is None else f"shape {list(embedding.shape)}"
        raise tensor_error(path, EMBEDDING, f"expected a tensor with 2 dimensions, got {got}")

    return embedding.shape[0]


def _dense_layers(model: GGUFModel) -> list[int]:
    """Return the layers without experts in a model with experts."""
    matches = map(_DENSE.fullmatch, model.tensors)
    return sorted({int(match[1]) for match in matches if match is not None})


def _optional(model: GGUFModel, architecture: Architecture) -> dict[str, Any]:
    metadata = model.metadata
    values: dict[str, Any] = {}
    for field, suffix in architecture.integers.items():
        if (key := model.key(suffix)) in metadata:
            values[field] = metadata.integer(key)
    for field, suffix in architecture.numbers.items():
        if (key := model.key(suffix)) in metadata:
            values[field] = metadata.number(key) or None  # 0 turns a factor or a cap off.
    for field, suffix in architecture.booleans.items():
        if (key := model.key(suffix)) in metadata:
            values[field] = metadata.boolean(key, False)
    for field, tensor in architecture.tensors.items():
        names = (f"blk.0.{tensor}", f"blk.0.{tensor.replace('attn_q.', 'attn_qkv.')}")
        values[field] = any(name in model.tensors for name in names)
    return values
