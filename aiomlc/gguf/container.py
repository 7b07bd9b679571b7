"""The container format of GGUF: metadata, and where the tensors are. Tensor data is not read here.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3. Nothing in a
file is trusted: every count, length and offset is checked against the bytes that there are before
anything is allocated or repeated for it.
"""

from __future__ import annotations

__all__ = ("GGUFFile", "TensorInfo", "gguf_error", "read_container", "tensor_error")

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aiomlc.cache.files import Stamp, stamp_of
from aiomlc.errors import ModelLoadError
from aiomlc.gguf.tensor_types import TENSOR_TYPES, TensorType
from aiomlc.gguf.values import ByteReader, EndOfBytesError, RawValue, decode_value
from aiomlc.validation.json_values import safe_repr
from aiomlc.validation.model_files import open_file

MAX_HEADER_BYTES: Final = 128 << 20  #: Metadata and tensor infos; Gemma 3 has 10 MB.
MAX_KEYS: Final = 1 << 16
MAX_TENSORS: Final = 1 << 18

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_ALIGNMENT_KEY = "general.alignment"
_DEFAULT_ALIGNMENT = 32
_MAX_ALIGNMENT = 1 << 20
_MAX_DIMENSIONS = 4
_MAX_NAME_BYTES = 1 << 10
_MIN_KEY_BYTES = 13  # The length of the key, the type of the value, and a value of a byte.
_MIN_TENSOR_BYTES = 32  # The length of the name, the number of sizes, a size, type and offset.
_FIRST_READ = 16 << 20  # Bytes; most headers are shorter.
_MAX_KEPT = 64 << 10  # Bytes of a value that is kept in memory.


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """A tensor in a file; `shape` is row-major, so its last size is that of a row."""

    name: str
    path: Path
    type: TensorType
    shape: tuple[int, ...]
    offset: int  #: In bytes, from the beginning of the file.

    @property
    def nbytes(self) -> int:
        """Size in the file."""
        return self.type.nbytes(math.prod(self.shape))


@dataclass(frozen=True, slots=True)
class GGUFFile:
    """The contents of one file, without its tensor data and long values."""

    path: Path
    values: Mapping[str, RawValue]
    tensors: Mapping[str, TensorInfo]
    stamp: Stamp  #: Of the file when it was read.


def gguf_error(path: Path, name: str, problem: str) -> ModelLoadError:
    """Return the error `PATH: NAME PROBLEM` of a metadata key."""
    return ModelLoadError(f"{path}: {name} {problem}", path=path, field=name)


def tensor_error(path: Path, name: str, problem: str) -> ModelLoadError:
    """Return the error `PATH: NAME: PROBLEM` of a tensor."""
    return ModelLoadError(f"{path}: {name}: {problem}", path=path, tensor=name)


def read_container(path: Path) -> GGUFFile:
    """Read the header of a file.

    Raises:
        ModelNotFoundError: If the file does not exist.
        ModelLoadError: If it is not a regular file, truncated, too large or invalid.
    """
    with open_file(path) as file:
        status = os.fstat(file.fileno())
        size = status.st_size
        data = file.read(min(size, _FIRST_READ))
        try:
            return _parse(path, ByteReader(data), size, stamp_of(status))
        except EndOfBytesError:
            data += file.read(min(size, MAX_HEADER_BYTES) - len(data))
        try:
            return _parse(path, ByteReader(data), size, stamp_of(status))
        except EndOfBytesError:
            raise _header_error(path, size) from None


def _header_error(path: Path, size: int) -> ModelLoadError:
    problem = f"truncated: its header does not end within its {size:,} bytes"
    if size > MAX_HEADER_BYTES:
        problem = f"its header must have at most {MAX_HEADER_BYTES:,} bytes"
    return ModelLoadError(f"{path}: {problem}", path=path)


def _parse(path: Path, reader: ByteReader, size: int, stamp: Stamp) -> GGUFFile:
    _check_version(path, reader)
    tensor_count, key_count = reader.integer("Q"), reader.integer("Q")
    _check_count(path, "metadata keys", key_count, min(MAX_KEYS, size // _MIN_KEY_BYTES))
    _check_count(path, "tensors", tensor_count, min(MAX_TENSORS, size // _MIN_TENSOR_BYTES))
    values: dict[str, RawValue] = {}
    for _ in range(key_count):
        key = _name(path, reader, "a metadata key")
        if key in values:
            raise gguf_error(path, key, "is there twice")

        values[key] = _read_value(path, reader, key)
    infos = [_read_tensor(path, reader) for _ in range(tensor_count)]
    alignment = _alignment(path, values)
    data = -(-reader.position // alignment) * alignment
    tensors = {info.name: _located(info, data, alignment, size) for info in infos}
    _check_names(path, infos, tensors)
    _check_overlap(list(tensors.values()))
    return GGUFFile(path, values, tensors, stamp)


def _check_version(path: Path, reader: ByteReader) -> None:
    if (magic := reader.take(4)) != _MAGIC:
        raise ModelLoadError(f"{path}: is not a GGUF file: it starts with {magic!r}", path=path)

    version = reader.integer("I")
    if version in _VERSIONS:
        return

    if int.from_bytes(version.to_bytes(4, "little"), "big") in _VERSIONS:
        problem = "is big-endian, which is not supported: convert it to little-endian"
    else:
        problem = f"has version {version} of GGUF; supported: {', '.join(map(str, _VERSIONS))}"
    raise ModelLoadError(f"{path}: {problem}", path=path)


def _check_count(path: Path, name: str, count: int, limit: int) -> None:
    if count > limit:
        problem = f"the number of {name} must be <= {limit}, got {count}"
        raise ModelLoadError(f"{path}: {problem}", path=path)


def _name(path: Path, reader: ByteReader, what: str) -> str:
    length = reader.integer("Q")
    if not 1 <= length <= _MAX_NAME_BYTES:
        problem = f"the name of {what} must have 1 to {_MAX_NAME_BYTES} bytes, got {length}"
        raise ModelLoadError(f"{path}: {problem}", path=path)

    name = reader.take(length)
    try:
        text = name.decode()
    except UnicodeDecodeError:
        text = ""
    if not text.isprintable() or not text:
        problem = f"the name of {what} must be printable UTF-8, got {safe_repr(name)}"
        raise ModelLoadError(f"{path}: {problem}", path=path)

    return text


def _read_value(path: Path, reader: ByteReader, key: str) -> RawValue:
    kind = reader.integer("I")
    start = reader.position
    try:
        reader.skip_value(kind)
    except ValueError as error:
        raise gguf_error(path, key, str(error)) from None

    end = reader.position
    data = reader.slice(start, end) if end - start <= _MAX_KEPT else None
    return RawValue(kind, start, end - start, data)


def _alignment(path: Path, values: Mapping[str, RawValue]) -> int:
    if _ALIGNMENT_KEY not in values:
        return _DEFAULT_ALIGNMENT

    raw = values[_ALIGNMENT_KEY]
    value = None if raw.data is None else decode_value(raw.kind, raw.data)
    is_power = type(value) is int and 0 < value <= _MAX_ALIGNMENT and value & (value - 1) == 0
    if not is_power:
        problem = f"must be a power of two up to {_MAX_ALIGNMENT}, got {safe_repr(value)}"
        raise gguf_error(path, _ALIGNMENT_KEY, problem)

    assert isinstance(value, int)
    return value


def _read_tensor(path: Path, reader: ByteReader) -> TensorInfo:
    name = _name(path, reader, "a tensor")
    dimensions = reader.integer("I")
    if not 1 <= dimensions <= _MAX_DIMENSIONS:
        problem = f"must have 1 to {_MAX_DIMENSIONS} dimensions, got {dimensions}"
        raise tensor_error(path, name, problem)

    sizes = [reader.integer("Q") for _ in range(dimensions)]
    number, offset = reader.integer("I"), reader.integer("Q")
    if number not in TENSOR_TYPES:
        raise tensor_error(path, name, f"its type {number} is not a tensor type of GGUF")

    tensor_type = TENSOR_TYPES[number]
    if min(sizes) < 1 or math.prod(sizes) >= 2**62:
        raise tensor_error(path, name, f"its shape is invalid: {sizes[::-1]}")

    if sizes[0] % tensor_type.block_size:
        problem = f"must be a multiple of {tensor_type.block_size} for {tensor_type.name}"
        raise tensor_error(path, name, f"its row size {problem}, got {sizes[0]}")

    return TensorInfo(name, path, tensor_type, tuple(reversed(sizes)), offset)


def _located(info: TensorInfo, data: int, alignment: int, size: int) -> TensorInfo:
    """Return a tensor with its offset from the beginning of the file, where `data` is that of the
    tensor data."""
    if info.offset % alignment:
        problem = f"its offset must be a multiple of {alignment}, got {info.offset}"
        raise tensor_error(info.path, info.name, problem)

    end = data + info.offset + info.nbytes
    if end > size:
        problem = f"truncated: the tensor ends at byte {end}, the file has {size} bytes"
        raise tensor_error(info.path, info.name, problem)

    return TensorInfo(info.name, info.path, info.type, info.shape, data + info.offset)


def _check_names(path: Path, infos: list[TensorInfo], tensors: Mapping[str, TensorInfo]) -> None:
    if len(infos) == len(tensors):
        return

    seen: set[str] = set()
    for info in infos:
        if info.name in seen:
            raise tensor_error(path, info.name, "the tensor is there twice")

        seen.add(info.name)


def _check_overlap(tensors: list[TensorInfo]) -> None:
    previous: TensorInfo | None = None
    for tensor in sorted(tensors, key=lambda each: each.offset):
        if previous is not None and tensor.offset < previous.offset + previous.nbytes:
            problem = f"the tensor overlaps {previous.name}"
            raise tensor_error(tensor.path, tensor.name, problem)

        previous = tensor
