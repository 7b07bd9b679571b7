"""The tensors of a model directory and their locations in files. Tensor data is not read here."""

from __future__ import annotations

__all__ = (
    "DTYPE_BYTES",
    "MAX_DIMENSIONS",
    "Source",
    "SourceTensor",
    "is_file_name",
    "is_size",
    "is_sizes",
    "load_error",
    "missing_error",
    "read_index",
)

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeGuard

import orjson

from aiomlc.cache.files import Stamp
from aiomlc.errors import ModelLoadError, ModelNotFoundError
from aiomlc.models.config.quantization import StoredQuantization
from aiomlc.models.parameters.parameter import Parameter
from aiomlc.validation.model_files import read_bytes
from aiomlc.validation.model_formats import describe_unsupported

#: The maximum number of dimensions of a tensor.
MAX_DIMENSIONS: Final = 8
# Supported dtypes. A tensor of another dtype keeps the file's name for it and cannot be loaded.
DTYPE_BYTES: Final = {
    "f32": 4,
    "f16": 2,
    "bf16": 2,
    "f8e4m3": 1,
    "f8e5m2": 1,
    "i32": 4,
    "u32": 4,
    "i8": 1,
    "u8": 1,
}


@dataclass(frozen=True, slots=True)
class SourceTensor:
    """A row-major tensor at byte `offset` of the file `path`."""

    name: str
    path: Path
    offset: int
    dtype: str
    shape: tuple[int, ...]

    def with_flat_rows(self, num_axes: int = 2) -> SourceTensor:
        """Return the tensor with `num_axes` axes, the first of which spans all that are more."""
        first = len(self.shape) - num_axes + 1
        return replace(self, shape=(math.prod(self.shape[:first]), *self.shape[first:]))


@dataclass(frozen=True, slots=True)
class Source:
    """The tensors of one model directory by name."""

    directory: Path
    index: Path  #: The file that lists the tensors.
    tensors: dict[str, SourceTensor]
    files: tuple[Path, ...]  #: The files with tensor data.
    is_mlc: bool  #: Whether the directory has MLC's format rather than Hugging Face's.
    quantization: StoredQuantization | None = None  #: None if matrices consist of floats.
    #: The stamps of the model's files by name, from before they were read.
    stamps: Mapping[str, Stamp] = field(default_factory=dict)
    #: Returns the name that the files have for a tensor.
    name_in_file: Callable[[str], str] = str
    is_gguf: bool = False

    def renamed(self, name_of: Callable[[str], str]) -> Source:
        """Return the source with other names of its tensors.

        Args:
            name_of: Returns the new name of a tensor for its present one.
        """
        names = {name_of(name): name for name in self.tensors}

        def name_in_file(name: str) -> str:
            return self.name_in_file(names.get(name, name))

        return replace(
            self,
            tensors={name: self.tensors[old] for name, old in names.items()},
            name_in_file=name_in_file,
        )

    def with_flat_columns(self, parameters: Iterable[Parameter]) -> Source:
        """Return the source of parameters whose matrices have more axes in files of convolutions.

        Matrices that multiply pixels have an axis for each of channels, rows and columns, those
        that multiply frames one for channels and one for frames. MLC's format has the names of
        Hugging Face, too.
        """
        tensors = dict(self.tensors)
        columns = [
            (name, parameter.shape[1])
            for parameter in parameters
            if parameter.kind == "matrix"
            for name in parameter.sources
        ]
        for name, size in columns:
            if (tensor := tensors.get(name)) is not None and len(tensor.shape) != 2:
                rows, rest = divmod(math.prod(tensor.shape), size)
                if not rest:
                    tensors[name] = replace(tensor, shape=(rows, size))
        return replace(self, tensors=tensors, is_mlc=False)


def is_size(value: object) -> TypeGuard[int]:
    """Return whether a JSON value is a non-negative integer; `true` is not."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def is_sizes(value: object) -> TypeGuard[list[int]]:
    """Return whether a JSON value is a list of at most `MAX_DIMENSIONS` non-negative integers."""
    if not isinstance(value, list) or len(value) > MAX_DIMENSIONS:
        return False

    return all(is_size(item) for item in value)


def is_file_name(name: str) -> bool:
    """Return whether a name from a file is a plain file name, which cannot leave its directory."""
    return name not in {"", ".", ".."} and Path(name).name == name and "\0" not in name


def read_index(path: Path) -> Any:  # noqa: ANN401 - JSON has no narrower type.
    """Return the JSON value of a weight index.

    Raises:
        ModelNotFoundError: If the file does not exist.
        ModelLoadError: If it is not a regular file, is too large or is not JSON.
    """
    content = read_bytes(path)
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise load_error(f"invalid JSON: {error}", path=path) from None


def load_error(message: str, *, path: Path, tensor: str | None = None) -> ModelLoadError:
    """Return an error whose message starts with the file and the tensor."""
    location = f"{path}: {tensor}" if tensor else str(path)
    return ModelLoadError(f"{location}: {message}", path=path, tensor=tensor)


def missing_error(directory: Path, names: Sequence[str]) -> ModelNotFoundError:
    """Return the error for a directory that has none of the files."""
    problem = f"{directory}: neither {' nor '.join(names)} exists"
    hint = describe_unsupported(directory)
    return ModelNotFoundError(f"{problem}: {hint}" if hint else problem, path=directory)
