"""The headers of safetensors files: one file, or shards with an index.

Format: https://huggingface.co/docs/safetensors.
"""

from __future__ import annotations

__all__ = ("INDEX_NAME", "SINGLE_NAME", "read_safetensors", "read_safetensors_file")

import json
import math
import os
from pathlib import Path
from typing import Any, Final

import orjson

from aiomlc.errors import ModelNotFoundError
from aiomlc.validation.model_files import open_file
from aiomlc.weights.formats.source import (
    DTYPE_BYTES,
    Source,
    SourceTensor,
    is_file_name,
    is_sizes,
    load_error,
    missing_error,
    read_index,
)

SINGLE_NAME: Final = "model.safetensors"
INDEX_NAME: Final = "model.safetensors.index.json"
MAX_HEADER_BYTES: Final = 100_000_000  # The limit of the safetensors library.
DTYPES: Final = {
    "F32": "f32",
    "F16": "f16",
    "BF16": "bf16",
    "F8_E4M3": "f8e4m3",
    "F8_E5M2": "f8e5m2",
    "I32": "i32",
    "I8": "i8",
    "U8": "u8",
}
# Tensors of these are not read, but their entries must be consistent.
_OTHER_BYTES: Final = {
    "F64": 8,
    "I64": 8,
    "U64": 8,
    "U32": 4,
    "I16": 2,
    "U16": 2,
    "BOOL": 1,
}


def read_safetensors(directory: Path) -> Source:
    """Read the headers of `model.safetensors`, or of the shards that the index lists.

    Raises:
        ModelLoadError: If a file is missing or invalid, or two shards contain the same tensor.
    """
    single = directory / SINGLE_NAME
    if single.exists():
        return Source(directory, single, read_safetensors_file(single), (single,), is_mlc=False)

    index = directory / INDEX_NAME
    weight_map = _read_weight_map(index)
    tensors: dict[str, SourceTensor] = {}
    shards = tuple(directory / name for name in sorted(set(weight_map.values())))
    for shard in shards:
        for name, tensor in read_safetensors_file(shard).items():
            if name in tensors:
                other = tensors[name].path.name
                raise load_error(f"tensor is also in {other}", path=shard, tensor=name)

            tensors[name] = tensor

    for name, shard_name in weight_map.items():
        if name not in tensors:
            raise load_error(
                f"the index assigns this tensor to {shard_name}, which does not contain it",
                path=index,
                tensor=name,
            )

    return Source(directory, index, tensors, shards, is_mlc=False)


def read_safetensors_file(path: Path) -> dict[str, SourceTensor]:
    """Read the header of one file.

    Raises:
        ModelLoadError: If the file is missing, truncated or not a safetensors file.
    """
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(8), "little")
        _check_header_length(path, length, size)
        header = _parse_header(path, file.read(length))

    header.pop("__metadata__", None)
    data = 8 + length
    tensors = {name: _parse_entry(path, name, entry, data) for name, entry in header.items()}
    _check_extents(path, header, size - data)
    return tensors


def _check_header_length(path: Path, length: int, size: int) -> None:
    if size < 8 or length > size - 8:
        message = f"truncated: header ends at byte {8 + length}, but the file has {size} bytes"
        raise load_error(message, path=path)

    if length > MAX_HEADER_BYTES:
        message = f"the header must have at most {MAX_HEADER_BYTES:,} bytes, got {length:,}"
        raise load_error(message, path=path)


def _parse_header(path: Path, data: bytes) -> dict[str, Any]:
    try:
        header = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise load_error(f"header is invalid JSON: {error}", path=path) from None

    if not isinstance(header, dict):
        raise load_error("header must be a JSON object", path=path)

    # The format forbids names that are there twice, of which each reader would take another one.
    seen: set[str] = set()
    for name, entry in json.loads(data, object_pairs_hook=list):
        if not name:
            raise load_error("the name of a tensor is empty", path=path)

        if name in seen:
            raise load_error("the tensor is there twice", path=path, tensor=name)

        seen.add(name)
        if isinstance(header[name], dict) and len(entry) != len(header[name]):
            raise load_error("a field of it is there twice", path=path, tensor=name)

    return header


def _read_weight_map(index: Path) -> dict[str, str]:
    try:
        content = read_index(index)
    except ModelNotFoundError:
        raise missing_error(index.parent, (SINGLE_NAME, INDEX_NAME)) from None

    shards = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(shards, dict) or not all(isinstance(s, str) for s in shards.values()):
        raise load_error("weight_map must map tensor names to file names", path=index)

    for name, shard in shards.items():
        if not is_file_name(shard):
            message = f"shard name must be a plain file name, got {shard!r}"
            raise load_error(message, path=index, tensor=name)

    return shards


def _parse_entry(path: Path, name: str, entry: object, data: int) -> SourceTensor:
    fields = entry if isinstance(entry, dict) else {}
    dtype_name, shape, offsets = (fields.get(key) for key in ("dtype", "shape", "data_offsets"))
    if not isinstance(dtype_name, str) or not is_sizes(shape) or not is_sizes(offsets):
        raise load_error("header entry is malformed", path=path, tensor=name)

    if len(offsets) != 2 or offsets[0] > offsets[1]:
        raise load_error(
            f"data_offsets must be [begin, end], got {offsets}", path=path, tensor=name
        )

    dtype = DTYPES.get(dtype_name, dtype_name)
    size = offsets[1] - offsets[0]
    item_bytes = DTYPE_BYTES.get(dtype, _OTHER_BYTES.get(dtype_name))
    if item_bytes is not None and size != (expected := math.prod(shape) * item_bytes):
        message = f"expected {expected} bytes for {dtype_name} {shape}, got {size}"
        raise load_error(message, path=path, tensor=name)

    return SourceTensor(name, path, data + offsets[0], dtype, tuple(shape))


def _check_extents(path: Path, header: dict[str, Any], size: int) -> None:
    """Raise if a tensor ends after the file or overlaps another one."""
    previous_end, previous_name = 0, ""
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, end = entry["data_offsets"]
        if end > size:
            message = f"truncated: tensor ends at byte {end}, file has {size} bytes of data"
            raise load_error(message, path=path, tensor=name)

        if begin < previous_end:
            raise load_error(f"tensor overlaps {previous_name}", path=path, tensor=name)

        previous_end, previous_name = end, name
