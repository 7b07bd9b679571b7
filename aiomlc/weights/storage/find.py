"""The matrices of a source that a parameter consists of."""

from __future__ import annotations

__all__ = ("find_matrices", "row_order")

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from aiomlc.gguf.tensor_types import GGML_TYPES
from aiomlc.models.parameters.packed_parameter import PackedParameter
from aiomlc.models.parameters.parameter import RowOrder
from aiomlc.weights.formats.source import Source, SourceTensor
from aiomlc.weights.storage.blocks import BLOCK_FORMATS, block_matrix
from aiomlc.weights.storage.experts import MXFP4_BLOCKS, find_by_inputs, find_mxfp4
from aiomlc.weights.storage.floats import FP8_TYPES, find_fp8, find_mlc_fp8, float_matrix
from aiomlc.weights.storage.integers import (
    find_awq,
    find_compressed,
    find_gptq,
    find_mlc_groups,
    find_progressive,
)
from aiomlc.weights.storage.stored_matrix import FLOAT_TYPES, StoredMatrix, StoredType
from aiomlc.weights.storage.tensors import (
    TensorLookup,
    require_dtype,
    shape_error,
    tensor_error,
)


def find_matrices(
    source: Source, tensors: TensorLookup, parameter: PackedParameter
) -> tuple[StoredMatrix, ...]:
    """Return what is stacked on axis 0 to make a parameter, in the order of the source's rows.

    Raises:
        ModelLoadError: If a tensor is missing or has the wrong shape or dtype.
    """
    if parameter.kind == "order":
        matrix = replace(parameter, kind="matrix", shape=(0, parameter.shape[0]))
        return tuple(_find_ordered(tensors, name, matrix) for name in parameter.sources)

    if source.is_mlc:
        matrices = _find_mlc(tensors, parameter)
    elif _is_fused(source, parameter):
        matrices = _find_fused(tensors, parameter)
    else:
        matrices = tuple(_find_hugging_face(tensors, n, parameter) for n in parameter.sources)
    _check_row_sum(parameter, matrices)
    return matrices


def row_order(source: Source, parameter: PackedParameter) -> RowOrder | None:
    """Return the order of the rows in the source's matrices; None if it is that of the graph."""
    if source.is_mlc:
        return None

    return parameter.fused_row_order if _is_fused(source, parameter) else parameter.row_order


def _is_fused(source: Source, parameter: PackedParameter) -> bool:
    """Return whether one tensor has the matrices of all experts; also if it is missing."""
    name = parameter.fused_source
    if name in source.tensors or f"{name}{MXFP4_BLOCKS}" in source.tensors:
        return True

    if parameter.fused_layout == "outputs" or source.is_gguf:
        return False

    return parameter.sources[0] not in source.tensors


def _find_fused(tensors: TensorLookup, parameter: PackedParameter) -> tuple[StoredMatrix, ...]:
    name = parameter.fused_source
    if f"{name}{MXFP4_BLOCKS}" in tensors:
        return (find_mxfp4(tensors, name, parameter),)

    if parameter.kind == "matrix" and parameter.fused_layout != "outputs":
        return find_by_inputs(tensors.get(name), parameter)

    return (_find_hugging_face(tensors, name, parameter),)


def _find_mlc(tensors: TensorLookup, parameter: PackedParameter) -> tuple[StoredMatrix, ...]:
    parts = parameter.mlc_parts or (parameter.name,)
    shape = parameter.shape
    if parameter.kind == "vector":
        return tuple(float_matrix(tensors.get(part), shape) for part in parts)

    if _has_groups(tensors, parts[0]):
        # The last part has the rows that remain, so that a wrong shape is an error of its tensor.
        *others, last = parts
        find = find_progressive if tensors.quantization.name == "w4a8" else find_mlc_groups
        matrices = [find(tensors, part, shape[1], None) for part in others]
        rows = shape[0] - sum(matrix.rows for matrix in matrices)
        return *matrices, find(tensors, last, shape[1], rows)

    return tuple(_find_mlc_part(tensors, part, parameter) for part in parts)


def _has_groups(tensors: TensorLookup, module: str) -> bool:
    name = f"{module}.q_weight"
    return name in tensors and tensors.get(name).dtype not in FP8_TYPES


def _find_mlc_part(tensors: TensorLookup, module: str, parameter: PackedParameter) -> StoredMatrix:
    if f"{module}.q_weight" in tensors:
        return find_mlc_fp8(tensors, module, parameter.shape)

    if f"{module}.qweight" in tensors:
        return find_awq(tensors, module, parameter.shape[1])

    return _find_weight(tensors, f"{module}.weight", parameter)


def _find_hugging_face(
    tensors: TensorLookup, name: str, parameter: PackedParameter
) -> StoredMatrix:
    if parameter.kind == "vector":
        return float_matrix(_flat(tensors.get(name), parameter), parameter.shape)

    module = name.removesuffix(".weight")
    columns = parameter.shape[1]
    if _has_groups(tensors, module):  # Of a projector in MLC's format.
        return find_mlc_groups(tensors, module, columns, None)

    if _has_packed(tensors, module, "qweight", "scales"):
        find = find_gptq if tensors.quantization.method == "gptq" else find_awq
        return find(tensors, module, columns)

    if _has_packed(tensors, module, "weight_packed", "weight_shape"):
        return find_compressed(tensors, module, columns)

    return _find_weight(tensors, name, parameter)


def _has_packed(tensors: TensorLookup, module: str, values: str, companion: str) -> bool:
    """Return whether a matrix is packed, also if only a companion shows that it should be.

    Then the values themselves are missed, and not the weight that a packed matrix does not have.
    """
    if f"{module}.{values}" in tensors:
        return True

    return f"{module}.weight" not in tensors and f"{module}.{companion}" in tensors


def _find_ordered(tensors: TensorLookup, name: str, parameter: PackedParameter) -> StoredMatrix:
    """Return a matrix whose inputs have an order."""
    matrix = _find_hugging_face(tensors, name, parameter)
    if matrix.groups is None:
        raise tensor_error(matrix.tensor, "its inputs have no order, unlike those of other tensors")

    return matrix


def _find_weight(tensors: TensorLookup, name: str, parameter: PackedParameter) -> StoredMatrix:
    """Return a matrix whose values have the name of the weight itself."""
    tensor = _flat(tensors.get(name), parameter)
    if tensor.dtype in FP8_TYPES:
        return find_fp8(tensors, name, parameter.shape)

    if tensor.dtype == "i8" and tensors.quantization.method == "compressed-tensors":
        return find_compressed(tensors, name.removesuffix(".weight"), parameter.shape[1])

    if tensor.dtype in GGML_TYPES:
        require_dtype(tensor, *FLOAT_TYPES, *BLOCK_FORMATS)
        return block_matrix(tensor, cast("StoredType", tensor.dtype), parameter.shape)

    return float_matrix(tensor, parameter.shape)


def _flat(tensor: SourceTensor, parameter: PackedParameter) -> SourceTensor:
    """Return the tensor with a single axis of rows, if the parameter's rows may span several."""
    if not parameter.fused_source or len(tensor.shape) <= len(parameter.shape):
        return tensor

    return tensor.with_flat_rows(len(parameter.shape))


def _check_row_sum(parameter: PackedParameter, matrices: Sequence[StoredMatrix]) -> None:
    expected = parameter.shape[0]
    rows = sum(matrix.rows for matrix in matrices)
    if rows == expected:
        return

    tensors = [matrix.tensor for matrix in matrices]
    if len(tensors) == 1:
        raise shape_error(tensors[0], parameter.shape)

    shapes = ", ".join(f"{tensor.name} {list(tensor.shape)}" for tensor in tensors)
    raise tensor_error(
        tensors[0],
        f"wrong shape: expected {expected} rows of {parameter.name}, got {rows} from {shapes}",
    )
