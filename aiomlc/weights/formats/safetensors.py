"""The headers of safetensors files: one file, or shards with an index."""

from __future__ import annotations

__all__ = ("INDEX_NAME", "SINGLE_NAME", "read_safetensors", "read_safetensors_file")

import math
from pathlib import Path
from typing import Any, Final

import orjson

from aiomlc.weights.formats.source import (
    DTYPE_BYTES,
    Source,
    SourceTensor,
    is_file_name,
    is_sizes,
    load_error,
    missing_error,
)

SINGLE_NAME: Final = "model.safetensors"
INDEX_NAME: Final = "model.safetensors.index.json"
LARGEST_HEADER: Final = 100_000_000
DTYPES: Final = {"F32": "f32", "F16": "f16", "BF16": "bf16"}


def read_safetensors(directory: Path) -> Source:
    """Read the headers of `model.safetensors`, or of the shards that its index names.

    Raises:
        ModelLoadError: a file is missing or broken, or two shards hold the same tensor.
    """
    single = directory / SINGLE_NAME
    if single.exists():
        return Source(directory, single, read_safetensors_file(single), (single,), is_mlc=False)

    index = directory / INDEX_NAME
    owners = _read_weight_map(index)
    tensors: dict[str, SourceTensor] = {}
    shards = tuple(directory / name for name in sorted(set(owners.values())))
    for shard in shards:
        for name, tensor in read_safetensors_file(shard).items():
            if name in tensors:
                other = tensors[name].path.name
                raise load_error(f"tensor is also in {other}", path=shard, tensor=name)

            tensors[name] = tensor

    for name, shard_name in owners.items():
        if name not in tensors:
            raise load_error(
                f"the index places this tensor in {shard_name}, which does not hold it",
                path=index,
                tensor=name,
            )

    return Source(directory, index, tensors, shards, is_mlc=False)


def read_safetensors_file(path: Path) -> dict[str, SourceTensor]:
    """Read the header of one file.

    Raises:
        ModelLoadError: the file is missing, truncated or not a safetensors file.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > min(LARGEST_HEADER, size - 8):
                message = f"truncated: the header ends at byte {8 + length} of {size}"
                raise load_error(message, path=path)

            header = orjson.loads(file.read(length))
    except OSError as error:
        raise load_error(f"cannot read: {error.strerror}", path=path) from error
    except orjson.JSONDecodeError as error:
        raise load_error(f"header is not JSON: {error}", path=path) from error

    if not isinstance(header, dict):
        raise load_error("header is not a JSON object", path=path)

    header.pop("__metadata__", None)
    begin = 8 + length
    tensors = {name: _parse_entry(path, name, entry, begin) for name, entry in header.items()}
    _check_extents(path, header, size - begin)
    return tensors


def _read_weight_map(index: Path) -> dict[str, str]:
    try:
        content = orjson.loads(index.read_bytes())
    except FileNotFoundError as error:
        raise missing_error(index.parent, (SINGLE_NAME, INDEX_NAME)) from error
    except OSError as error:
        raise load_error(f"cannot read: {error.strerror}", path=index) from error
    except orjson.JSONDecodeError as error:
        raise load_error(f"not JSON: {error}", path=index) from error

    owners = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(owners, dict) or not all(isinstance(o, str) for o in owners.values()):
        raise load_error("weight_map is missing or not a map of names", path=index)

    for name, shard in owners.items():
        if not is_file_name(shard):
            raise load_error(f"shard name {shard!r} is not a file name", path=index, tensor=name)

    return owners


def _parse_entry(path: Path, name: str, entry: object, data: int) -> SourceTensor:
    fields = entry if isinstance(entry, dict) else {}
    dtype_name, shape, offsets = (fields.get(key) for key in ("dtype", "shape", "data_offsets"))
    if not isinstance(dtype_name, str) or not is_sizes(shape) or not is_sizes(offsets):
        raise load_error("header entry is malformed", path=path, tensor=name)

    if len(offsets) != 2 or offsets[0] > offsets[1]:
        raise load_error(f"data_offsets are {offsets}", path=path, tensor=name)

    dtype = DTYPES.get(dtype_name, dtype_name)
    expected = math.prod(shape) * DTYPE_BYTES.get(dtype, 0)
    if dtype in DTYPE_BYTES and offsets[1] - offsets[0] != expected:
        message = f"tensor has {offsets[1] - offsets[0]} bytes, its type and shape need {expected}"
        raise load_error(message, path=path, tensor=name)

    return SourceTensor(name, path, data + offsets[0], dtype, tuple(shape))


def _check_extents(path: Path, header: dict[str, Any], size: int) -> None:
    """Tensors must lie in the file and must not overlap."""
    previous_end, previous_name = 0, ""
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, end = entry["data_offsets"]
        if end > size:
            message = f"truncated: the tensor ends at byte {end} of {size}"
            raise load_error(message, path=path, tensor=name)

        if begin < previous_end:
            raise load_error(f"tensor overlaps {previous_name}", path=path, tensor=name)

        previous_end, previous_name = end, name
