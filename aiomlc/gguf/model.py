"""A model in GGUF: the metadata of its first file, and the tensors of all its files."""

from __future__ import annotations

__all__ = ("GGUFModel", "read_gguf")

import functools
import hashlib
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from aiomlc.cache.files import Stamp, is_settled, stamp_of
from aiomlc.gguf.container import (
    GGUFFile,
    TensorInfo,
    gguf_error,
    read_container,
    tensor_error,
)
from aiomlc.gguf.metadata import Metadata
from aiomlc.gguf.shards import shard_paths
from aiomlc.validation.model_files import load_errors, open_file

_SHARD_COUNT = "split.count"
_SHARD_NUMBER = "split.no"
_TENSOR_COUNT = "split.tensors.count"
_TOKENIZER, _CHAT_TEMPLATES = "tokenizer.", "tokenizer.chat_template"
_MAX_SMALL_BYTES = 1 << 20


@dataclass(frozen=True, eq=False)
class GGUFModel:
    """The metadata and the tensors of a model."""

    path: Path  #: The first file.
    files: tuple[Path, ...]
    metadata: Metadata
    tensors: Mapping[str, TensorInfo]

    @property
    def architecture(self) -> str:
        """The architecture, as llama.cpp names it.

        Raises:
            ModelLoadError: If the metadata does not have it.
        """
        return self.metadata.string("general.architecture")

    @functools.cached_property
    def tokenizer_digest(self) -> str:
        """The SHA-256 of all keys of the tokenizer except its chat templates.

        Raises:
            ModelLoadError: If the file has been modified since it was opened.
        """
        digest = hashlib.sha256()
        for key in sorted(self.metadata.keys()):
            if key.startswith(_TOKENIZER) and not key.startswith(_CHAT_TEMPLATES):
                data = self.metadata.data(key)
                digest.update(f"\0{key}\0{len(data)}\0".encode())
                digest.update(data)
        return digest.hexdigest()

    def key(self, suffix: str) -> str:
        """Return the metadata key of a property of the architecture."""
        return f"{self.architecture}.{suffix}"

    def vector(self, name: str) -> list[float] | None:
        """Return the values of a small vector of type F32; None if there is no such tensor.

        They are the shortest decimal numbers that round to them, as those of metadata.

        Raises:
            ModelLoadError: If it is not a small vector of that type, or the file changed.
        """
        tensor = self.tensors.get(name)
        if tensor is None:
            return None

        if tensor.type.name != "F32" or len(tensor.shape) != 1 or tensor.nbytes > _MAX_SMALL_BYTES:
            problem = f"must be a short vector of type F32, got {tensor.type.name}"
            raise tensor_error(tensor.path, name, f"{problem} {list(tensor.shape)}")

        with open_file(tensor.path) as file:
            file.seek(tensor.offset)
            data = file.read(tensor.nbytes)
        import numpy as np  # Takes 0.1 s, so it is only imported when a file is read.

        with load_errors(tensor.path):
            return [float(str(x)) for x in np.frombuffer(data, "<f4", tensor.shape[0])]


class _RecentModels:
    """The models that were read last, so that opening one reads its headers once. Thread-safe."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._models: dict[Path, tuple[list[Stamp], GGUFModel]] = {}
        self._lock = threading.Lock()

    def find(self, path: Path) -> GGUFModel | None:
        with self._lock:
            stamps, model = self._models.get(path, ([], None))
        if model is None or _stamps(model.files) != stamps:
            return None

        return model

    def add(self, model: GGUFModel, stamps: list[Stamp]) -> None:
        with self._lock:
            self._models.pop(model.path, None)
            self._models[model.path] = (stamps, model)
            while len(self._models) > self._capacity:
                del self._models[next(iter(self._models))]


_recent = _RecentModels(4)


def read_gguf(path: Path) -> GGUFModel:
    """Read the headers of the model that a file belongs to, unless they have been read before.

    Raises:
        ModelNotFoundError: If a file does not exist.
        ModelLoadError: If a file is invalid, or the files are not the shards of one model.
    """
    paths = shard_paths(path)
    if (known := _recent.find(paths[0])) is not None:
        return known

    files = [read_container(each) for each in paths]
    _check_shards(files)
    model = GGUFModel(paths[0], paths, Metadata(files[0]), _join_tensors(files))
    stamps = [file.stamp for file in files]
    if is_settled(stamps):  # Else a modification might not be noticed.
        _recent.add(model, stamps)
    return model


def _stamps(paths: Iterable[Path]) -> list[Stamp]:
    try:
        return [stamp_of(path.stat()) for path in paths]
    except OSError:
        return []


def _check_shards(files: list[GGUFFile]) -> None:
    for index, file in enumerate(files):
        metadata = Metadata(file)
        count = metadata.integer(_SHARD_COUNT, 0) or 1
        if count != len(files):
            expected = (
                "its name has no number of a shard" if len(files) == 1 else "as its name says"
            )
            problem = f"must be {len(files)}, {expected}, got {count}"
            raise gguf_error(file.path, _SHARD_COUNT, problem)

        number = metadata.integer(_SHARD_NUMBER, 0)
        if number != index:
            raise gguf_error(file.path, _SHARD_NUMBER, f"must be {index}, got {number}")


def _join_tensors(files: list[GGUFFile]) -> Mapping[str, TensorInfo]:
    tensors: dict[str, TensorInfo] = {}
    for file in files:
        for name, tensor in file.tensors.items():
            if name in tensors:
                other = tensors[name].path.name
                raise tensor_error(file.path, name, f"the tensor is also in {other}")

            tensors[name] = tensor

    first = Metadata(files[0])
    if first.integer(_TENSOR_COUNT, len(tensors)) != len(tensors):
        problem = f"is {first.integer(_TENSOR_COUNT)}, but the files have {len(tensors)} tensors"
        raise gguf_error(files[0].path, _TENSOR_COUNT, problem)

    return tensors
