"""GGUF files with random blocks in the shapes of models whose weights are too large to make.

Speed does not depend on the values of the weights, so a file needs neither a download nor the
memory of its model: tensors are written one after another.
"""

from __future__ import annotations

__all__ = ("SHAPES", "GgufShape", "make_random_gguf")

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGML_QUANT_SIZES
from gguf import GGMLQuantizationType as Type
from numpy.typing import NDArray

from benchmarks.random_llama import make_tokenizer

_TRAINED_TOKENS = 16_384  # The others are placeholders: only their number counts.
_CHUNK = 1 << 22  # Elements of the random values that a tensor repeats.


@dataclass(frozen=True, slots=True)
class _Tensor:
    """One tensor; the shape is that of NumPy, so rows come before columns."""

    name: str
    shape: tuple[int, ...]
    type: Type = Type.F32


@dataclass(frozen=True, slots=True)
class GgufShape:
    """Dimensions of a model, by the names of its GGUF file."""

    architecture: str
    vocabulary: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int  #: Of the dense layers, or of one expert.
    experts: int = 0
    active: int = 0
    metadata: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def with_layers(self, layers: int | None) -> GgufShape:
        """Return the shape with fewer layers; None leaves it."""
        return self if layers is None else dataclasses.replace(self, layers=layers)


_DELTA_NET = {"ssm.conv_kernel": 4, "ssm.state_size": 128, "full_attention_interval": 4}
_QWEN35_2B = GgufShape("qwen35", 248_320, 2048, 24, 8, 2, 256, 6144, metadata=_DELTA_NET | {
    "ssm.group_count": 16, "ssm.time_step_rank": 16, "ssm.inner_size": 2048,
})  # fmt: skip

SHAPES: Mapping[str, GgufShape] = {
    "gpt-oss-20b": GgufShape(
        "gpt-oss", 201_088, 2880, 24, 64, 8, 64, 2880, 32, 4, {"attention.sliding_window": 128}
    ),
    "qwen3.6-35b-a3b": GgufShape(
        "qwen35moe", 248_320, 2048, 40, 16, 2, 256, 512, 256, 8, _DELTA_NET | {
            "ssm.group_count": 16, "ssm.time_step_rank": 32, "ssm.inner_size": 4096,
            "expert_shared_feed_forward_length": 512,
        },
    ),
    "qwen3.5-2b": _QWEN35_2B,
    "qwen3.5-0.8b": dataclasses.replace(_QWEN35_2B, hidden=1024, intermediate=3584),
    "tiny": GgufShape("qwen35moe", 2_048, 256, 4, 4, 2, 64, 256, 8, 2, _DELTA_NET | {
        "ssm.state_size": 64, "ssm.group_count": 2, "ssm.time_step_rank": 4,
        "ssm.inner_size": 256, "expert_shared_feed_forward_length": 256,
    }),
}  # fmt: skip


def make_random_gguf(directory: Path, shape: GgufShape) -> Path:
    """Write `model.gguf` and its `tokenizer.json` unless they exist; return the file's path.

    gpt-oss gets MXFP4 experts and Q8_0 for the rest; the others are mixed as `Q4_K_M`.
    """
    path = directory / "model.gguf"
    if path.is_file():
        return path

    directory.mkdir(parents=True, exist_ok=True)
    make_tokenizer(directory, min(_TRAINED_TOKENS, shape.vocabulary))
    temporary = path.with_suffix(".part")
    writer = gguf.GGUFWriter(temporary, shape.architecture)
    _add_metadata(writer, shape)
    _add_tokenizer(writer, directory, shape.vocabulary)
    tensors = list(_TENSORS[shape.architecture](shape))
    for tensor in tensors:
        stored = _stored_shape(tensor)
        kind = np.dtype(np.float32 if tensor.type is Type.F32 else np.uint8)
        size = int(np.prod(stored)) * kind.itemsize
        writer.add_tensor_info(tensor.name, stored, kind, size, raw_dtype=tensor.type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    random = np.random.Generator(np.random.PCG64(0))
    for tensor in tensors:
        writer.write_tensor_data(_random_tensor(random, tensor))
    writer.close()
    temporary.rename(path)
    return path


def _add_metadata(writer: gguf.GGUFWriter, shape: GgufShape) -> None:
    values: dict[str, Any] = {
        "block_count": shape.layers,
        "context_length": 32_768,
        "embedding_length": shape.hidden,
        "feed_forward_length": shape.intermediate,
        "attention.head_count": shape.heads,
        "attention.head_count_kv": shape.kv_heads,
        "attention.key_length": shape.head_dim,
        "attention.value_length": shape.head_dim,
        **shape.metadata,
    }
    if shape.experts:
        values |= {
            "expert_count": shape.experts,
            "expert_used_count": shape.active,
            "expert_feed_forward_length": shape.intermediate,
        }
    for key, value in values.items():
        writer.add_uint32(f"{shape.architecture}.{key}", value)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(1e6)
    if shape.architecture == "gpt-oss":
        writer.add_rope_dimension_count(shape.head_dim)
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(32.0)
        writer.add_rope_scaling_orig_ctx_len(4096)
    else:
        writer.add_rope_dimension_count(shape.head_dim // 4)
        writer.add_rope_dimension_sections([11, 11, 10, 0])


def _add_tokenizer(writer: gguf.GGUFWriter, directory: Path, vocabulary: int) -> None:
    tokenizer = json.loads((directory / "tokenizer.json").read_bytes())
    added = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    known = tokenizer["model"]["vocab"] | added
    tokens = sorted(known, key=lambda token: known[token])
    kinds = [
        gguf.TokenType.CONTROL if token in added else gguf.TokenType.NORMAL for token in tokens
    ]
    missing = range(len(tokens), vocabulary)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([*tokens, *(f"[PAD{i}]" for i in missing)])
    writer.add_token_types([*kinds, *(gguf.TokenType.UNUSED for _ in missing)])
    merges = tokenizer["model"]["merges"]
    writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in merges])
    writer.add_eos_token_id(known["</s>"])
    settings = json.loads((directory / "tokenizer_config.json").read_bytes())
    writer.add_chat_template(settings["chat_template"])


def _gpt_oss_tensors(shape: GgufShape) -> Iterator[_Tensor]:
    hidden, experts, inner = shape.hidden, shape.experts, shape.intermediate
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    yield _Tensor("token_embd.weight", (shape.vocabulary, hidden), Type.Q8_0)
    yield _Tensor("output_norm.weight", (hidden,))
    yield _Tensor("output.weight", (shape.vocabulary, hidden), Type.Q8_0)
    for layer in range(shape.layers):
        for name, rows, columns in (
            ("attn_q", queries, hidden),
            ("attn_k", keys, hidden),
            ("attn_v", keys, hidden),
            ("attn_output", hidden, queries),
        ):
            yield _Tensor(f"blk.{layer}.{name}.weight", (rows, columns), Type.Q8_0)
            yield _Tensor(f"blk.{layer}.{name}.bias", (rows,))
        yield _Tensor(f"blk.{layer}.attn_norm.weight", (hidden,))
        yield _Tensor(f"blk.{layer}.post_attention_norm.weight", (hidden,))
        yield _Tensor(f"blk.{layer}.attn_sinks.weight", (shape.heads,))
        yield _Tensor(f"blk.{layer}.ffn_gate_inp.weight", (experts, hidden))
        yield _Tensor(f"blk.{layer}.ffn_gate_inp.bias", (experts,))
        for name, rows, columns in (
            ("ffn_gate_exps", inner, hidden),
            ("ffn_up_exps", inner, hidden),
            ("ffn_down_exps", hidden, inner),
        ):
            yield _Tensor(f"blk.{layer}.{name}.weight", (experts, rows, columns), Type.MXFP4)
            yield _Tensor(f"blk.{layer}.{name}.bias", (experts, rows))


def _qwen35_tensors(shape: GgufShape) -> Iterator[_Tensor]:
    hidden = shape.hidden
    yield _Tensor("token_embd.weight", (shape.vocabulary, hidden), Type.Q6_K)
    yield _Tensor("output_norm.weight", (hidden,))
    if shape.experts:
        yield _Tensor("output.weight", (shape.vocabulary, hidden), Type.Q6_K)
    for layer in range(shape.layers):
        # llama.cpp gives a part of the layers, spread like this, six bits in some places.
        eighth = max(1, shape.layers // 8)
        more = layer < eighth or layer >= 7 * eighth or (layer - eighth) % 3 == 2
        wide = Type.Q6_K if more else Type.Q4_K
        full = (layer + 1) % shape.metadata["full_attention_interval"] == 0
        mixer = _attention_tensors(shape, wide) if full else _delta_net_tensors(shape, wide)
        for tensor in (*mixer, *_feed_forward_tensors(shape, wide)):
            yield dataclasses.replace(tensor, name=f"blk.{layer}.{tensor.name}")


def _attention_tensors(shape: GgufShape, wide: Type) -> Iterator[_Tensor]:
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    yield _Tensor("attn_q.weight", (2 * queries, shape.hidden), Type.Q4_K)
    yield _Tensor("attn_k.weight", (keys, shape.hidden), Type.Q4_K)
    yield _Tensor("attn_v.weight", (keys, shape.hidden), wide)
    yield _Tensor("attn_output.weight", (shape.hidden, queries), Type.Q4_K)
    yield _Tensor("attn_q_norm.weight", (shape.head_dim,))
    yield _Tensor("attn_k_norm.weight", (shape.head_dim,))


def _delta_net_tensors(shape: GgufShape, wide: Type) -> Iterator[_Tensor]:
    sizes = shape.metadata
    heads, values = sizes["ssm.time_step_rank"], sizes["ssm.inner_size"]
    channels = values + 2 * sizes["ssm.group_count"] * sizes["ssm.state_size"]
    yield _Tensor("attn_qkv.weight", (channels, shape.hidden), wide)
    yield _Tensor("attn_gate.weight", (values, shape.hidden), Type.Q4_K)
    yield _Tensor("ssm_conv1d.weight", (channels, sizes["ssm.conv_kernel"]))
    yield _Tensor("ssm_dt.bias", (heads,))
    yield _Tensor("ssm_a", (heads,))
    yield _Tensor("ssm_beta.weight", (heads, shape.hidden), Type.Q8_0)
    yield _Tensor("ssm_alpha.weight", (heads, shape.hidden), Type.Q8_0)
    yield _Tensor("ssm_norm.weight", (values // heads,))
    yield _Tensor("ssm_out.weight", (shape.hidden, values), Type.Q4_K)


def _feed_forward_tensors(shape: GgufShape, wide: Type) -> Iterator[_Tensor]:
    hidden, inner = shape.hidden, shape.intermediate
    yield _Tensor("attn_norm.weight", (hidden,))
    yield _Tensor("post_attention_norm.weight", (hidden,))
    if not shape.experts:
        yield _Tensor("ffn_gate.weight", (inner, hidden), Type.Q4_K)
        yield _Tensor("ffn_up.weight", (inner, hidden), Type.Q4_K)
        yield _Tensor("ffn_down.weight", (hidden, inner), wide)
        return

    shared = shape.metadata["expert_shared_feed_forward_length"]
    yield _Tensor("ffn_gate_inp.weight", (shape.experts, hidden))
    yield _Tensor("ffn_gate_inp_shexp.weight", (hidden,))
    yield _Tensor("ffn_gate_shexp.weight", (shared, hidden), Type.Q4_K)
    yield _Tensor("ffn_up_shexp.weight", (shared, hidden), Type.Q4_K)
    yield _Tensor("ffn_down_shexp.weight", (hidden, shared), wide)
    yield _Tensor("ffn_gate_exps.weight", (shape.experts, inner, hidden), Type.Q4_K)
    yield _Tensor("ffn_up_exps.weight", (shape.experts, inner, hidden), Type.Q4_K)
    yield _Tensor("ffn_down_exps.weight", (shape.experts, hidden, inner), wide)


_TENSORS: Mapping[str, Callable[[GgufShape], Iterator[_Tensor]]] = {
    "gpt-oss": _gpt_oss_tensors,
    "qwen35": _qwen35_tensors,
    "qwen35moe": _qwen35_tensors,
}

#: Bytes of the scales in a block: their offset, type and value; all other bytes are random.
_SCALES: Mapping[Type, tuple[tuple[int, str, float], ...]] = {
    Type.Q4_K: ((0, "<f2", 2e-4), (2, "<f2", 1.5e-3)),
    Type.Q6_K: ((208, "<f2", 1e-5),),
    Type.Q8_0: ((0, "<f2", 3e-4),),
    Type.MXFP4: ((0, "u1", 121),),
}


def _stored_shape(tensor: _Tensor) -> tuple[int, ...]:
    """Return the shape of the tensor's bytes, or of its floats."""
    if tensor.type is Type.F32:
        return tensor.shape

    elements, size = GGML_QUANT_SIZES[tensor.type]
    return (*tensor.shape[:-1], tensor.shape[-1] // elements * size)


def _random_tensor(random: np.random.Generator, tensor: _Tensor) -> NDArray[Any]:
    if tensor.type is Type.F32:
        values: NDArray[np.float32] = random.standard_normal(tensor.shape, np.float32)
        values *= 0.02
        if tensor.name.endswith("ssm_a"):
            values = -np.exp(values)
        elif tensor.name.endswith("norm.weight"):
            values += 1

        return values

    elements, size = GGML_QUANT_SIZES[tensor.type]
    count = int(np.prod(tensor.shape)) // elements
    blocks = random.integers(0, 256, (min(count, _CHUNK // elements), size), np.uint8)
    for offset, kind, value in _SCALES[tensor.type]:
        scale = np.frombuffer(np.array(value, kind).tobytes(), np.uint8)
        blocks[:, offset : offset + len(scale)] = scale
    return np.resize(blocks, (count, size)).reshape(_stored_shape(tensor))
