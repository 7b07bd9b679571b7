"""The weight index of an MLC directory: `tensor-cache.json`, or the older `ndarray-cache.json`."""

from __future__ import annotations

__all__ = ("INDEX_NAMES", "read_mlc")

import math
from pathlib import Path
from typing import Annotated, ClassVar, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from aiomlc.errors import ModelNotFoundError
from aiomlc.validation.error_messages import plain_message
from aiomlc.validation.model_files import file_size
from aiomlc.weights.formats.source import (
    DTYPE_BYTES,
    MAX_DIMENSIONS,
    Source,
    SourceTensor,
    is_file_name,
    load_error,
    missing_error,
    read_index,
)

INDEX_NAMES: Final = ("tensor-cache.json", "ndarray-cache.json")
DTYPES: Final = {
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "uint32": "u32",
    "uint8": "u8",  # Of `w4a8`.
    "float8_e4m3fn": "f8e4m3",
    "e4m3_float8": "f8e4m3",  # As older versions of TVM name it.
    "float8_e5m2": "f8e5m2",
    "e5m2_float8": "f8e5m2",
}

Size = Annotated[int, Field(ge=0)]


class TensorRecord(BaseModel):
    """One tensor of a shard."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True)
    name: str
    shape: Annotated[tuple[Size, ...], Field(max_length=MAX_DIMENSIONS)]
    dtype: str
    format: str = "raw"
    nbytes: Size
    byte_offset: Size = Field(alias="byteOffset")


class ShardRecord(BaseModel):
    """One `params_shard_*.bin`."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True)
    data_path: str = Field(alias="dataPath")
    nbytes: Size
    records: tuple[TensorRecord, ...]


class TensorCache(BaseModel):
    """The index of the shard files. Unknown keys are ignored."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True)
    records: tuple[ShardRecord, ...]


def read_mlc(directory: Path) -> Source:
    """Read the weight index and check it against the sizes of the shards.

    Raises:
        ModelLoadError: If the index or a shard is missing or invalid.
    """
    index, cache = _read_index(directory)
    tensors: dict[str, SourceTensor] = {}
    for shard in cache.records:
        path = _check_shard(index, shard)
        for record in shard.records:
            if record.name in tensors:
                other = tensors[record.name].path.name
                raise load_error(f"tensor is also in {other}", path=index, tensor=record.name)

            tensors[record.name] = _parse_record(path, shard, record)

    files = tuple(directory / shard.data_path for shard in cache.records)
    return Source(directory, index, tensors, files, is_mlc=True)


def _read_index(directory: Path) -> tuple[Path, TensorCache]:
    for index in (directory / name for name in INDEX_NAMES):
        try:
            return index, TensorCache.model_validate(read_index(index))
        except ModelNotFoundError:
            continue
        except ValidationError as error:
            problem = _first_problem(error)
            raise load_error(f"invalid weight index: {problem}", path=index) from None

    raise missing_error(directory, INDEX_NAMES)


def _first_problem(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {plain_message(first['msg'])}"


def _check_shard(index: Path, shard: ShardRecord) -> Path:
    if not is_file_name(shard.data_path):
        raise load_error(
            f"shard name must be a plain file name, got {shard.data_path!r}", path=index
        )

    path = index.parent / shard.data_path
    size = file_size(path)
    if size != shard.nbytes:
        raise load_error(f"expected {shard.nbytes} bytes, got {size}", path=path)

    return path


def _parse_record(path: Path, shard: ShardRecord, record: TensorRecord) -> SourceTensor:
    dtype = DTYPES.get(record.dtype, record.dtype)
    if record.format == "f32-to-bf16" and dtype == "f32":
        dtype = "bf16"  # Only the upper 16 bits are stored.
    elif record.format not in {"raw", "f32-to-bf16"}:
        message = f"unknown tensor format {record.format!r}"
        raise load_error(message, path=path, tensor=record.name)

    expected = math.prod(record.shape) * DTYPE_BYTES.get(dtype, 0)
    if dtype in DTYPE_BYTES and record.nbytes != expected:
        tensor = f"{record.dtype} {list(record.shape)}"
        message = f"expected {expected} bytes for {tensor}, got {record.nbytes}"
        raise load_error(message, path=path, tensor=record.name)

    if record.byte_offset + record.nbytes > shard.nbytes:
        end = record.byte_offset + record.nbytes
        message = f"tensor ends at byte {end}, shard has {shard.nbytes} bytes"
        raise load_error(message, path=path, tensor=record.name)

    return SourceTensor(record.name, path, record.byte_offset, dtype, record.shape)
