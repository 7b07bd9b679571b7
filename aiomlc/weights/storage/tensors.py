"""Lookup of the tensors of a source, and checks of their dtypes and shapes."""

from __future__ import annotations

__all__ = (
    "TensorLookup",
    "dtype_error",
    "require_dtype",
    "require_shape",
    "shape_error",
    "tensor_error",
)

from collections.abc import Sequence
from typing import final

from aiomlc.errors import ModelLoadError
from aiomlc.models.config.quantization import StoredQuantization
from aiomlc.weights.formats.source import Source, SourceTensor, load_error


@final
class TensorLookup:
    """Finds tensors by name, and records which are used."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.used: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._source.tensors

    @property
    def quantization(self) -> StoredQuantization:
        """The stored quantization of matrices; floats have one without options."""
        return self._source.quantization or StoredQuantization("q0f32", "mlc")

    def get(self, name: str) -> SourceTensor:
        """Return a tensor.

        Raises:
            ModelLoadError: If it is missing.
        """
        tensor = self._source.tensors.get(name)
        if tensor is None:
            missing = self._source.name_in_file(name)
            raise load_error("tensor is missing", path=self._source.index, tensor=missing)

        self.used.add(name)
        return tensor

    def first(self, names: Sequence[str]) -> SourceTensor:
        """Return the first tensor that exists.

        Raises:
            ModelLoadError: If all are missing.
        """
        return self.get(next((name for name in names if name in self), names[0]))


def tensor_error(tensor: SourceTensor, message: str) -> ModelLoadError:
    """Return an error that names the file and the tensor."""
    return load_error(message, path=tensor.path, tensor=tensor.name)


def dtype_error(tensor: SourceTensor, expected: str) -> ModelLoadError:
    """Return the error of a tensor whose dtype is not `expected`."""
    return tensor_error(tensor, f"wrong dtype: expected {expected}, got {tensor.dtype}")


def shape_error(tensor: SourceTensor, expected: Sequence[int]) -> ModelLoadError:
    """Return the error of a tensor whose shape is not `expected`."""
    shape = list(tensor.shape)
    return tensor_error(tensor, f"wrong shape: expected {list(expected)}, got {shape}")


def require_dtype(tensor: SourceTensor, *allowed: str) -> None:
    """Raise unless the tensor has one of these dtypes."""
    if tensor.dtype not in allowed:
        *others, last = allowed
        raise dtype_error(tensor, f"{', '.join(others)} or {last}" if others else last)


def require_shape(tensor: SourceTensor, expected: Sequence[int]) -> None:
    """Raise unless the tensor has this shape."""
    if tensor.shape != tuple(expected):
        raise shape_error(tensor, expected)
