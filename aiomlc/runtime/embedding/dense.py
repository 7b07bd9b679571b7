"""The dense layers of sentence-transformers, which change pooled vectors."""

from __future__ import annotations

__all__ = ("DenseLayer", "read_dense")

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from aiomlc.errors import ModelLoadError
from aiomlc.models.config.fields import Fields
from aiomlc.validation.model_files import open_file, read_object
from aiomlc.weights.formats.safetensors import read_safetensors_file
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
    weights = directory / "model.safetensors"
    tensors = read_safetensors_file(weights)
    bias = None
    if fields.boolean("bias", True):
        bias = _read(tensors, weights, "linear.bias", shape[:1])
    weight = _read(tensors, weights, "linear.weight", shape)
    return DenseLayer(weight, bias, kind == "Tanh")


def _read(
    tensors: dict[str, SourceTensor], path: Path, name: str, shape: tuple[int, ...]
) -> NDArray[np.float32]:
    tensor = tensors.get(name)
    if tensor is None or tensor.shape != shape or tensor.dtype not in _DTYPES:
        got = "none" if tensor is None else f"{tensor.dtype} {list(tensor.shape)}"
        raise ModelLoadError(
            f"{path}: {name}: expected floats of shape {list(shape)}, got {got}",
            path=path,
            tensor=name,
        )

    dtype = _DTYPES[tensor.dtype]
    with open_file(path) as file:
        file.seek(tensor.offset)
        data = file.read(int(np.prod(shape)) * dtype.itemsize)
    values = np.frombuffer(data, dtype)
    if tensor.dtype == "bf16":
        values = (values.astype(np.uint32) << 16).view(np.float32)
    floats: NDArray[np.float32] = values.astype(np.float32).reshape(shape)
    return floats
