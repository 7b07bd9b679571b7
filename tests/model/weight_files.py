"""Model directories written from NumPy arrays, and the expected packed bytes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

SAFETENSORS_NAMES = {"f32": "F32", "f16": "F16", "bf16": "BF16"}
MLC_NAMES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}


def to_bf16(values: Array) -> NDArray[np.uint16]:
    """Round to bfloat16, ties to even; return the upper 16 bits."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bf16(halves: Array) -> NDArray[np.float32]:
    """Return bfloat16 numbers as float32."""
    return (halves.astype(np.uint32) << 16).view(np.float32)


def store(values: Array, dtype: str) -> Array:
    """Return the array as a file of this dtype stores it."""
    if dtype == "bf16":
        return to_bf16(values)

    return values.astype(np.float16 if dtype == "f16" else np.float32)


def load(stored: Array) -> NDArray[np.float32]:
    """Return the result of `store` as float32."""
    return from_bf16(stored) if stored.dtype == np.uint16 else stored.astype(np.float32)


def quantize(weights: NDArray[np.float32]) -> tuple[NDArray[np.uint8], NDArray[np.float16]]:
    """Quantize to MLC's q4f16_1: values uint8[rows, groups * 32], scales float16[rows, groups].

    Every operation is in float16, as in MLC LLM's converter; NumPy rounds ties to even.
    """
    rows, cols = weights.shape
    groups = -(-cols // 32)
    padded = np.zeros((rows, groups * 32), np.float16)
    padded[:, :cols] = weights
    grouped = padded.reshape(rows, groups, 32)
    scales = np.abs(grouped).max(axis=2) / np.float16(7)
    with np.errstate(divide="ignore", invalid="ignore"):  # 0 / 0 is stored as 0.
        rounded = np.rint(grouped / scales[:, :, None] + np.float16(7))
    values = np.fmin(np.fmax(rounded, 0), 14).astype(np.uint8).reshape(rows, groups * 32)
    values[:, cols:] = 7
    return values, scales


def dequantize(values: NDArray[np.uint8], scales: NDArray[np.float16]) -> NDArray[np.float32]:
    """Return float32[rows, groups * 32] from the result of `quantize`."""
    levels = values.astype(np.float32) - np.float32(7)
    return levels * scales.astype(np.float32).repeat(32, axis=1)


def mlc_words(values: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """Pack eight values per word, the first in the lowest bits."""
    rows, cols = values.shape
    shifts = np.arange(8, dtype=np.uint32) * 4
    words = values.reshape(rows, cols // 8, 8).astype(np.uint32) << shifts
    return np.asarray(words.sum(axis=2, dtype=np.uint32))


def pack_q4(values: NDArray[np.uint8], scales: NDArray[np.float16]) -> bytes:
    """Return tiles of 16 rows: per group 4 x 64 bytes of nibbles, then 16 scales."""
    rows, groups = scales.shape
    tiles = -(-rows // 16)
    full = np.full((tiles * 16, groups * 32), 7, np.uint8)
    full[:rows] = values
    full_scales = np.zeros((tiles * 16, groups), np.float16)
    full_scales[:rows] = scales
    # [tile, row, group, half, i, j] -> [tile, group, i, row, j], low nibble from the first half.
    split = full.reshape(tiles, 16, groups, 2, 4, 4).transpose(0, 2, 3, 4, 1, 5)
    nibbles = (split[:, :, 0] | (split[:, :, 1] << 4)).reshape(tiles, groups, 256)
    scale_bytes = np.ascontiguousarray(
        full_scales.reshape(tiles, 16, groups).transpose(0, 2, 1)
    ).view(np.uint8)
    return np.concatenate([nibbles, scale_bytes], axis=2).tobytes()


def pack_dense(stored: Array) -> bytes:
    """Return tiles of 16 rows: for each column the 16 values of the tile."""
    rows, cols = stored.shape
    tiles = -(-rows // 16)
    full = np.zeros((tiles * 16, cols), stored.dtype)
    full[:rows] = stored
    return np.ascontiguousarray(full.reshape(tiles, 16, cols).transpose(0, 2, 1)).tobytes()


def pack_bf16(stored: Array) -> bytes:
    """Return tiles of 16 rows: for each pair of columns its 16 pairs, in groups of 32 columns."""
    rows, cols = stored.shape
    full = np.zeros((-(-rows // 16) * 16, -(-cols // 32) * 32), stored.dtype)
    full[:rows, :cols] = stored
    pairs = full.reshape(-1, 16, full.shape[1] // 2, 2).transpose(0, 2, 1, 3)
    return np.ascontiguousarray(pairs).tobytes()


def pack(weights: NDArray[np.float32], weight_format: str) -> bytes:
    """Return the packed bytes of a matrix."""
    match weight_format:
        case "q4":
            return pack_q4(*quantize(weights))
        case "bf16":
            return pack_bf16(store(weights, weight_format))
        case _:
            pass

    return pack_dense(store(weights, weight_format))


def write_safetensors(path: Path, tensors: Mapping[str, tuple[str, Array]]) -> None:
    """Write one file; each tensor is its dtype and the result of `store`."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, (dtype, stored) in tensors.items():
        header[name] = {
            "dtype": SAFETENSORS_NAMES[dtype],
            "shape": list(stored.shape),
            "data_offsets": [offset, offset + stored.nbytes],
        }
        offset += stored.nbytes

    write_raw_safetensors(path, header, b"".join(item.tobytes() for _, item in tensors.values()))


def write_raw_safetensors(path: Path, header: Mapping[str, Any], data: bytes) -> None:
    """Write a file with any header, valid or not."""
    encoded = json.dumps(header).encode()
    path.write_bytes(len(encoded).to_bytes(8, "little") + encoded + data)


def write_shards(directory: Path, shards: Sequence[Mapping[str, tuple[str, Array]]]) -> None:
    """Write shards and the index that assigns each tensor to its shard."""
    weight_map: dict[str, str] = {}
    for number, tensors in enumerate(shards, 1):
        name = f"model-{number:05}-of-{len(shards):05}.safetensors"
        write_safetensors(directory / name, tensors)
        weight_map |= dict.fromkeys(tensors, name)

    index = {"metadata": {"total_size": 0}, "weight_map": weight_map}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))


def mlc_record(name: str, stored: Array, **changes: str) -> dict[str, Any]:
    """Return a tensor record of an MLC index, without its offset in the shard."""
    return {
        "name": name,
        "shape": list(stored.shape),
        "dtype": stored.dtype.name,
        "format": "raw",
        "nbytes": stored.nbytes,
        **changes,
    }


def write_mlc(
    directory: Path,
    tensors: Sequence[tuple[dict[str, Any], Array]],
    *,
    index_name: str = "tensor-cache.json",
    tensors_per_shard: int = 3,
) -> None:
    """Write shards of a few tensors each, and their index."""
    shards = []
    for number, begin in enumerate(range(0, len(tensors), tensors_per_shard)):
        records = []
        data = b""
        for record, stored in tensors[begin : begin + tensors_per_shard]:
            records.append({"byteOffset": len(data), **record})
            data += stored.tobytes()

        name = f"params_shard_{number}.bin"
        (directory / name).write_bytes(data)
        digest = hashlib.md5(data, usedforsecurity=False).hexdigest()
        shards.append(
            {
                "dataPath": name,
                "format": "raw-shard",
                "nbytes": len(data),
                "md5sum": digest,
                "records": records,
            }
        )

    content = {"metadata": {"ParamSize": len(tensors)}, "records": shards}
    (directory / index_name).write_text(json.dumps(content))
