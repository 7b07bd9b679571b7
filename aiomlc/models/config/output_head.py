"""Whether a checkpoint has an output head of its own although its config ties it.

As in transformers, the tensors of a checkpoint decide: `tie_word_embeddings` stands for a head that
is missing or equal to the embedding. A config is read before the weights, so this module reads as
little of the safetensors files as it needs.
"""

from __future__ import annotations

__all__ = ("has_own_head", "has_tensor")

import json
import os
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from aiomlc.cache.files import stamp_of
from aiomlc.errors import ModelLoadError
from aiomlc.validation.model_files import open_file, read_json

_SINGLE: Final = "model.safetensors"
_INDEX: Final = "model.safetensors.index.json"
_MAX_HEADER_BYTES: Final = 100_000_000
_CHUNK_BYTES: Final = 1 << 20
# What reading a malformed header raises.
_INVALID: Final = (
    *(ModelLoadError, OSError, AttributeError, KeyError, TypeError, ValueError),
    *(OverflowError, RecursionError),
)


class _Tensor(NamedTuple):
    path: Path
    stamp: tuple[int, ...]
    offset: int
    nbytes: int
    kind: str  #: Its dtype and shape.


def has_own_head(
    directory: Path, embedding: str, head: str, renamed: Callable[[str], str] = str
) -> bool:
    """Return whether both tensors are in the safetensors files of a directory, and differ.

    False for files that are missing or invalid, which are reported when the weights are read.

    Args:
        directory: The directory of a Hugging Face model.
        embedding: The name of the embedding, without `.weight`.
        head: The name of the output head, without `.weight`.
        renamed: Returns by which of these names a tensor of the files is meant.
    """
    try:
        files = _tensor_files(directory)
        names = {renamed(name): name for name in files}
        heads = [name for name in names if name.startswith(f"{head}.") and not _is_bias(name)]
        tensors = [
            _find(directory / files[names[name]], names[name])
            for name in (f"{embedding}.weight", *heads[:1])
        ]
        return len(tensors) == 2 and not _are_equal(*tensors)
    except _INVALID:
        return False


def has_tensor(directory: Path, name: str) -> bool:
    """Return whether a tensor is in the safetensors files of a directory.

    False for files that are missing or invalid, as above.
    """
    try:
        return name in _tensor_files(directory)
    except _INVALID:
        return False


def _stamp(path: Path) -> tuple[int, ...]:
    return tuple(stamp_of(path.stat()))


def _is_bias(name: str) -> bool:
    return name.endswith(".bias")


def _tensor_files(directory: Path) -> Mapping[str, str]:
    """Return the file of every tensor."""
    if (path := directory / _SINGLE).exists():
        return dict.fromkeys(_read_header(path, _stamp(path)).entries, _SINGLE)

    files: Mapping[str, str] = read_json(directory / _INDEX)["weight_map"]
    if any(Path(name).name != name for name in files.values()):
        raise ValueError("the name of a shard is a path")

    return files


class _Header(NamedTuple):
    entries: Mapping[str, Any]
    data: int  #: The offset of the data, in bytes.


@lru_cache(maxsize=2)
def _read_header(path: Path, stamp: tuple[int, ...]) -> _Header:
    del stamp  # A part of the key: a file that has changed is read again.
    with open_file(path) as file:
        length = int.from_bytes(file.read(8), "little")
        if length > min(_MAX_HEADER_BYTES, os.fstat(file.fileno()).st_size):
            raise ValueError("the header is too long")

        return _Header(json.loads(file.read(length)), 8 + length)


def _find(path: Path, name: str) -> _Tensor:
    stamp = _stamp(path)
    header = _read_header(path, stamp)
    entry = header.entries[name]
    begin, end = entry["data_offsets"]
    kind = f"{entry['dtype']} {entry['shape']}"
    return _Tensor(path, stamp, header.data + int(begin), int(end) - int(begin), kind)


@lru_cache(maxsize=8)
def _are_equal(a: _Tensor, b: _Tensor) -> bool:
    if (a.kind, a.nbytes) != (b.kind, b.nbytes):
        return False

    with open_file(a.path) as one, open_file(b.path) as other:
        one.seek(a.offset)
        other.seek(b.offset)
        left = a.nbytes
        while left > 0:
            count = min(left, _CHUNK_BYTES)
            chunk = one.read(count)
            if chunk != other.read(count):
                return False

            left = left - count if chunk else 0  # A file that ends early is reported later.

    return True
