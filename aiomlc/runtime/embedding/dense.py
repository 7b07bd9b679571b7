"""The dense layers of sentence-transformers, which change pooled vectors."""

from __future__ import annotations

__all__ = ("DenseLayer", "TensorSource", "read_dense", "read_linear")

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from aiomlc.errors import ModelLoadError
from aiomlc.models.config.fields import Fields
from aiomlc.validation.model_files import open_file, read_object
from aiomlc.weights.formats.safetensors import read_safetensors, read_safetensors_file
from aiomlc.weights.formats.source import SourceTensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

_ACTIVATIONS = ("Identity", "Tanh")
_DTYPES: Mapping[str, np.dtype[Any]] = {
    "f32": np.dtype("<f4"),
    "f16": np.dtype("<f2"),
    "bf16": np.dtype("<u2"),
}


@dataclass(frozen=True, slots=True, eq=False)
class DenseLayer:
    """`activation(weight @ x + bias)`, in float32."""

    weight: NDArray[np.float32]  #: `[outputs, inputs]`
    bias: NDArray[np.float32] | None  #: `[outputs]`
    has_tanh: bool

    def apply(self, vector: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the outputs for a vector `[inputs]`."""
        outputs = self.weight @ vector
        if self.bias is not None:
            outputs = outputs + self.bias
        return np.tanh(outputs) if self.has_tanh else outputs

    def apply_rows(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the outputs `[n, outputs]` for rows `[n, inputs]`."""
        outputs = rows @ self.weight.T
        if self.bias is not None:
            outputs += self.bias
        return np.tanh(outputs) if self.has_tanh else outputs


def read_dense(directory: Path) -> DenseLayer:
    """Read the directory of a module `Dense`.

    Raises:
        ModelLoadError: If a file is missing or invalid, or the activation is not supported.
    """
    path = directory / "config.json"
    fields = Fields(read_object(path), path)
    activation = fields.string("activation_function", "torch.nn.modules.activation.Tanh")
    kind = activation.rpartition(".")[2]
    if kind not in _ACTIVATIONS:
        problem = f"must be one of {', '.join(_ACTIVATIONS)}, got {kind[:80]}"
        raise fields.error("activation_function", problem)

    shape = (fields.integer("out_features"), fields.integer("in_features"))
    tensors = read_safetensors_file(directory / "model.safetensors")
    source = TensorSource(directory / "model.safetensors", tensors)
    bias = None
    if fields.boolean("bias", True):
        bias = source.floats("linear.bias", shape[:1])
    return DenseLayer(source.floats("linear.weight", shape), bias, kind == "Tanh")


def read_linear(directory: Path, name: str, shape: tuple[int, int], *, bias: bool) -> DenseLayer:
    """Read a matrix `[outputs, inputs]` among the tensors of a model.

    Raises:
        ModelLoadError: If a tensor is missing, or has another shape.
    """
    weights = read_safetensors(directory)
    source = TensorSource(weights.index, weights.tensors)
    offsets = source.floats(f"{name}.bias", shape[:1]) if bias else None
    return DenseLayer(source.floats(f"{name}.weight", shape), offsets, has_tanh=False)


@dataclass(frozen=True, slots=True)
class TensorSource:
    """The tensors of a file."""

    path: Path  #: Named in errors.
    tensors: Mapping[str, SourceTensor]

    def floats(self, name: str, shape: tuple[int | None, ...]) -> NDArray[np.float32]:
        """Return a tensor of floats; None in its shape stands for any size.

        Raises:
            ModelLoadError: If there is no such tensor, or its data cannot be read.
        """
        tensor = self.tensors.get(name)
        if tensor is None or tensor.dtype not in _DTYPES or not _has_shape(tensor, shape):
            got = "none" if tensor is None else f"{tensor.dtype} {list(tensor.shape)}"
            sizes = ", ".join("n" if size is None else str(size) for size in shape)
            raise ModelLoadError(
                f"{self.path}: {name}: expected floats of shape [{sizes}], got {got}",
                path=self.path,
                tensor=name,
            )

        dtype = _DTYPES[tensor.dtype]
        with open_file(tensor.path) as file:
            file.seek(tensor.offset)
            data = file.read(math.prod(tensor.shape) * dtype.itemsize)
            values = np.frombuffer(data, dtype).reshape(tensor.shape)
        if tensor.dtype == "bf16":
            values = (values.astype(np.uint32) << 16).view(np.float32)
        floats: NDArray[np.float32] = values.astype(np.float32)
        return floats


def _has_shape(tensor: SourceTensor, shape: tuple[int | None, ...]) -> bool:
    return len(tensor.shape) == len(shape) and all(
        expected is None or size == expected
        for size, expected in zip(tensor.shape, shape, strict=True)
    )
