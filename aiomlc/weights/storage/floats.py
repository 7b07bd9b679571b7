"""Matrices and vectors of floats: of 16 and 32 bits, and of 8 bits with scales."""

from __future__ import annotations

__all__ = ("FP8_TYPES", "find_fp8", "find_mlc_fp8", "float_matrix")

from typing import Final

from aiomlc.weights.formats.source import SourceTensor
from aiomlc.weights.storage.stored_matrix import FLOAT_TYPES, ScaleTensor, StoredMatrix, StoredType
from aiomlc.weights.storage.tensors import (
    TensorLookup,
    require_dtype,
    shape_error,
    tensor_error,
)

FP8_TYPES: Final = ("f8e4m3", "f8e5m2")
_TYPES: Final[dict[str, StoredType]] = {
    "f32": "f32",
    "f16": "f16",
    "bf16": "bf16",
    "f8e4m3": "f8e4m3",
    "f8e5m2": "f8e5m2",
}


def float_matrix(tensor: SourceTensor, shape: tuple[int, ...]) -> StoredMatrix:
    """Return a tensor of floats as the rows of a parameter with this shape."""
    require_dtype(tensor, *FLOAT_TYPES)
    _require_columns(tensor, shape)
    columns = shape[1] if len(shape) > 1 else 1
    return StoredMatrix(_TYPES[tensor.dtype], tensor.shape[0], columns, tensor)


def find_fp8(tensors: TensorLookup, name: str, shape: tuple[int, ...]) -> StoredMatrix:
    """Return an FP8 tensor of a Hugging Face directory with its scales.

    A scale belongs to the tensor, to an output, or to a block.
    """
    tensor = tensors.get(name)
    # Both are factors of the stored values, in spite of the name of the first.
    scales = tensors.first((f"{name}_scale_inv", f"{name}_scale"))
    if len(tensor.shape) == 3 == len(scales.shape):
        tensor, scales = _flat_experts(tensors, tensor, scales)
    _require_columns(tensor, shape)
    return _scaled(tensors, tensor, scales)


def find_mlc_fp8(tensors: TensorLookup, module: str, shape: tuple[int, ...]) -> StoredMatrix:
    """Return an FP8 tensor of an MLC directory, with a scale unless its type has none."""
    tensor = tensors.get(f"{module}.q_weight")
    if len(tensor.shape) > len(shape):
        tensor = tensor.with_flat_rows()
    require_dtype(tensor, *FP8_TYPES)
    _require_columns(tensor, shape)
    if tensor.dtype == "f8e5m2":
        rows, columns = tensor.shape
        return StoredMatrix("f8e5m2", rows, columns, tensor)

    return _scaled(tensors, tensor, tensors.get(f"{module}.q_scale"))


def _flat_experts(
    tensors: TensorLookup, tensor: SourceTensor, scales: SourceTensor
) -> tuple[SourceTensor, SourceTensor]:
    """Return values and scales of blocks with one axis of rows, where each tensor has all experts.

    No block has rows of two experts.
    """
    block = tensors.quantization.block
    if block is not None and tensor.shape[1] % block[0]:
        raise tensor_error(
            tensor,
            f"the outputs of an expert must be a multiple of the {block[0]} of a block, got "
            f"{tensor.shape[1]}",
        )

    return tensor.with_flat_rows(), scales.with_flat_rows()


def _scaled(tensors: TensorLookup, tensor: SourceTensor, scales: SourceTensor) -> StoredMatrix:
    rows, columns = tensor.shape
    require_dtype(scales, *FLOAT_TYPES)
    block = tensors.quantization.block
    if scales.shape in {(), (1,), (1, 1)}:
        block = rows, columns
    elif scales.shape in {(rows,), (rows, 1)}:
        block = 1, columns
    elif block is None:
        raise shape_error(scales, (rows, 1))
    else:
        blocks = -(-rows // block[0]), -(-columns // block[1])
        if scales.shape != blocks:
            raise shape_error(scales, blocks)

    return StoredMatrix(_TYPES[tensor.dtype], rows, columns, tensor, ScaleTensor(scales, block))


def _require_columns(tensor: SourceTensor, shape: tuple[int, ...]) -> None:
    if len(tensor.shape) != len(shape) or tensor.shape[1:] != shape[1:]:
        raise shape_error(tensor, shape)

    if tensor.shape[0] == 0:
        raise tensor_error(tensor, "tensor has no rows")
