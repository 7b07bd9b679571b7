"""A tensor as it lies in a file of the model directory. Nothing here reads tensor data."""

from __future__ import annotations

__all__ = (
    "DTYPE_BYTES",
    "Source",
    "SourceTensor",
    "is_file_name",
    "is_size",
    "is_sizes",
    "load_error",
    "missing_error",
)

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeGuard

from aiomlc.errors import ModelLoadError, ModelNotFoundError

# Types we can read. A tensor of another type keeps the file's name for it, and may not be used.
DTYPE_BYTES: Final = {"f32": 4, "f16": 2, "bf16": 2, "u32": 4}


@dataclass(frozen=True, slots=True)
class SourceTensor:
    """A row-major tensor at `offset` of the file `path`."""

    name: str
    path: Path
    offset: int
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Source:
    """The tensors of one model directory by name."""

    directory: Path
    index: Path
    tensors: dict[str, SourceTensor]
    files: tuple[Path, ...]
    is_mlc: bool


def is_size(value: object) -> TypeGuard[int]:
    """Whether foreign JSON holds a count here; its `true` is not one."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def is_sizes(value: object) -> TypeGuard[list[int]]:
    """Whether foreign JSON holds a list of counts here."""
    return isinstance(value, list) and all(is_size(item) for item in value)


def is_file_name(name: str) -> bool:
    """Whether a foreign name stays in its directory: anything else is a mistake or an attack."""
    return name not in {"", ".", ".."} and Path(name).name == name


def load_error(message: str, *, path: Path, tensor: str | None = None) -> ModelLoadError:
    """An error whose text names the file and the tensor, too."""
    place = f"{path}: {tensor}" if tensor else str(path)
    return ModelLoadError(f"{place}: {message}", path=path, tensor=tensor)


def missing_error(directory: Path, names: Sequence[str]) -> ModelNotFoundError:
    """The error of a directory that has none of the files."""
    return ModelNotFoundError(f"{directory}: neither {' nor '.join(names)} exists", path=directory)
