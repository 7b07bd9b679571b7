"""LoRA adapters in PEFT's format, merged into the weights of a checkpoint.

`W + scale * B @ A`, where the scale is `alpha / r`, or `alpha / sqrt(r)` if it is rank-stabilized.
DoRA then scales each row to the norm in its magnitude vector.
"""

from __future__ import annotations

__all__ = ("LoraAdapter", "read_lora")

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from aiomlc.tools.lora_config import LoraConfig, read_lora_config
from aiomlc.validation.model_files import open_file
from aiomlc.weights.formats.safetensors import read_safetensors_file
from aiomlc.weights.formats.source import DTYPE_BYTES, Source, SourceTensor, load_error

_WEIGHTS_FILE: Final = "adapter_model.safetensors"
_PREFIX: Final = "base_model.model."
# By the end of a tensor's name: the part of a module's adapter, and whether it is an embedding's.
_PARTS: Final = {
    ".lora_A.weight": ("a", False),
    ".lora_B.weight": ("b", False),
    ".lora_embedding_A": ("a", True),
    ".lora_embedding_B": ("b", True),
    ".lora_magnitude_vector": ("magnitude", False),
    ".lora_magnitude_vector.weight": ("magnitude", False),
}

Array = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class LowRankUpdate:
    """The low-rank update of one module's weight: `b @ a` is added."""

    a: Array  #: `[rank, inputs]`
    b: Array  #: `[outputs, rank]`, with the scale.
    magnitude: Array | None  #: `[outputs]`: the norms of the rows of DoRA.

    def apply(self, first: int, rows: Array) -> None:
        """Update rows of the weight, of which the first is row `first`."""
        last = first + len(rows)
        rows += self.b[first:last] @ self.a
        if self.magnitude is not None:
            norms = np.linalg.norm(rows, axis=1)
            rows *= (self.magnitude[first:last] / norms)[:, None]


@dataclass(frozen=True, slots=True)
class LoraAdapter:
    """An adapter, by the names of the checkpoint's tensors that it changes."""

    path: Path
    updates: Mapping[str, LowRankUpdate] = field(default_factory=dict)
    #: Tensors that replace those of the checkpoint (`modules_to_save` and biases).
    saved: Mapping[str, SourceTensor] = field(default_factory=dict)

    def merge(self, name: str, first: int, rows: Array) -> Array:
        """Return rows of the tensor `name`, merged in place."""
        if (update := self.updates.get(name)) is not None:
            update.apply(first, rows)
        return rows

    def require_used(self, names: frozenset[str]) -> None:
        """Require that the model uses all tensors that the adapter changes.

        Raises:
            ModelLoadError: If it does not use one.
        """
        unused = sorted({*self.updates, *self.saved} - names)
        if unused:
            raise load_error(
                "the adapter changes this tensor, but the model does not use it",
                path=self.path,
                tensor=unused[0],
            )


def read_lora(directory: Path, source: Source) -> LoraAdapter:
    """Read an adapter for a checkpoint.

    Raises:
        ModelNotFoundError: If a file does not exist.
        ModelLoadError: If the adapter is not supported or does not fit the checkpoint.
    """
    config = read_lora_config(directory)
    path = directory / _WEIGHTS_FILE
    modules: dict[str, dict[str, SourceTensor]] = {}
    embeddings: set[str] = set()
    saved: dict[str, SourceTensor] = {}
    for name, tensor in read_safetensors_file(path).items():
        module, part, is_embedding = _parse_name(tensor)
        if part:
            modules.setdefault(module, {})[part] = tensor
            embeddings.update({module} if is_embedding else ())
        else:
            saved[module] = _require_shape(tensor, _base(source, tensor, module).shape)
        _require_float(path, name, tensor)
    updates = {
        f"{module}.weight": _update(config, source, module, parts, module in embeddings)
        for module, parts in modules.items()
    }
    return LoraAdapter(path, updates, saved)


def _parse_name(tensor: SourceTensor) -> tuple[str, str, bool]:
    """Return the module, the part of its adapter, and whether it is an embedding.

    The part is empty for a tensor that replaces one of the checkpoint, whose name is returned.
    """
    name = tensor.name.removeprefix(_PREFIX)
    if name == tensor.name:
        raise load_error(
            f"the name must begin with {_PREFIX}", path=tensor.path, tensor=tensor.name
        )

    for ending, (part, is_embedding) in _PARTS.items():
        if name.endswith(ending):
            return name.removesuffix(ending), part, is_embedding
    if ".lora_" in name:
        raise load_error(
            "this part of an adapter is not supported", path=tensor.path, tensor=tensor.name
        )

    # Next to adapters of embeddings, PEFT saves the embedding itself.
    return name.replace(".base_layer.", "."), "", False


def _update(
    config: LoraConfig,
    source: Source,
    module: str,
    parts: Mapping[str, SourceTensor],
    is_embedding: bool,
) -> LowRankUpdate:
    some = next(iter(parts.values()))
    outputs, inputs = _matrix_shape(_base(source, some, f"{module}.weight"))
    rank = config.rank_of(module)
    expected: dict[str, tuple[int, ...]] = {"a": (rank, inputs), "b": (outputs, rank)}
    if is_embedding:  # Its product is transposed.
        expected = {"a": (rank, outputs), "b": (inputs, rank)}
    if config.is_dora:
        expected["magnitude"] = (outputs,)
    if parts.keys() != expected.keys():
        names = ", ".join(sorted(expected))
        raise load_error(
            f"the adapter of {module} must consist of {names}, got {', '.join(sorted(parts))}",
            path=some.path,
        )

    arrays = {part: _read(_require_shape(tensor, expected[part])) for part, tensor in parts.items()}
    a, b = (arrays["b"].T, arrays["a"].T) if is_embedding else (arrays["a"], arrays["b"])
    scale = np.float32(config.scale_of(module))
    return LowRankUpdate(np.ascontiguousarray(a), b * scale, arrays.get("magnitude"))


def _matrix_shape(tensor: SourceTensor) -> tuple[int, int]:
    if len(tensor.shape) != 2:
        raise load_error(
            f"an adapter of a tensor of shape {list(tensor.shape)} is not supported",
            path=tensor.path,
            tensor=tensor.name,
        )

    rows, columns = tensor.shape
    return rows, columns


def _base(source: Source, tensor: SourceTensor, name: str) -> SourceTensor:
    if name not in source.tensors:
        raise load_error(
            f"the model has no tensor {name} to adapt", path=tensor.path, tensor=tensor.name
        )

    return source.tensors[name]


def _require_shape(tensor: SourceTensor, shape: tuple[int, ...]) -> SourceTensor:
    if tensor.shape != shape:
        raise load_error(
            f"wrong shape: expected {list(shape)}, got {list(tensor.shape)}",
            path=tensor.path,
            tensor=tensor.name,
        )

    return tensor


def _require_float(path: Path, name: str, tensor: SourceTensor) -> None:
    if tensor.dtype not in ("f32", "f16", "bf16"):
        raise load_error(
            f"wrong dtype: expected f32, f16 or bf16, got {tensor.dtype}", path=path, tensor=name
        )


def _read(tensor: SourceTensor) -> Array:
    count = int(np.prod(tensor.shape)) * DTYPE_BYTES[tensor.dtype]
    with open_file(tensor.path) as file:
        file.seek(tensor.offset)
        data = file.read(count)
    stored: NDArray[Any]
    if tensor.dtype == "bf16":
        stored = (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)
    else:
        stored = np.frombuffer(data, "<f4" if tensor.dtype == "f32" else "<f2")
    return stored.astype(np.float32).reshape(tensor.shape)
