"""The matrices of all experts in one tensor, as gpt-oss stores them: floats or MXFP4."""

from __future__ import annotations

__all__ = ("MXFP4_BLOCKS", "find_by_inputs", "find_mxfp4")

import math
from dataclasses import replace
from typing import Final

from aiomlc.models.parameters.packed_parameter import PackedParameter
from aiomlc.weights.formats.source import DTYPE_BYTES, SourceTensor
from aiomlc.weights.storage.blocks import BLOCK_FORMATS
from aiomlc.weights.storage.floats import float_matrix
from aiomlc.weights.storage.stored_matrix import IntegerTensor, ScaleTensor, StoredMatrix
from aiomlc.weights.storage.tensors import TensorLookup, require_dtype, require_shape, tensor_error

MXFP4_BLOCKS: Final = "_blocks"  #: Ends the name of the tensor with the codes of MXFP4.
_MXFP4_SCALES: Final = "_scales"
_GROUP: Final = 32  # Inputs with the same scale.
_GROUP_BYTES: Final = _GROUP // 2


def find_by_inputs(tensor: SourceTensor, parameter: PackedParameter) -> tuple[StoredMatrix, ...]:
    """Return the matrix of each expert in a tensor of floats `[experts, inputs, outputs]`.

    A matrix that is not of experts is `[inputs, outputs]`.

    Raises:
        ModelLoadError: If the tensor has the wrong shape or dtype.
    """
    experts, outputs, inputs = _sizes(parameter)
    axes = (experts,) if parameter.num_experts else ()
    require_shape(tensor, (*axes, inputs, outputs))
    expert = replace(tensor, shape=(outputs, inputs))
    matrix = replace(float_matrix(expert, (outputs, inputs)), by_inputs=True)
    nbytes = outputs * inputs * DTYPE_BYTES[tensor.dtype]
    return tuple(
        replace(matrix, values=replace(expert, offset=tensor.offset + index * nbytes))
        for index in range(experts)
    )


def find_mxfp4(tensors: TensorLookup, name: str, parameter: PackedParameter) -> StoredMatrix:
    """Return the rows of all experts in a tensor of MXFP4 codes, two in a byte, and its scales.

    The codes are `[experts, outputs, groups, 16]`, the scales, powers of two, `[experts, outputs,
    groups]`.

    Raises:
        ModelLoadError: If a tensor is missing or has the wrong shape or dtype.
    """
    blocks, scales = tensors.get(f"{name}{MXFP4_BLOCKS}"), tensors.get(f"{name}{_MXFP4_SCALES}")
    experts, outputs, inputs = _sizes(parameter)
    if inputs % _GROUP:
        problem = f"MXFP4 requires a multiple of {_GROUP} inputs, got {inputs}"
        raise tensor_error(blocks, problem)

    groups = inputs // _GROUP
    for tensor, shape in ((blocks, (groups, _GROUP_BYTES)), (scales, (groups,))):
        require_dtype(tensor, "u8")
        require_shape(tensor, (experts, outputs, *shape))
    rows = experts * outputs
    flat = replace(blocks, shape=(rows, math.prod(blocks.shape[2:])))
    powers = replace(scales, shape=(rows, groups), dtype="f8e8m0")
    return StoredMatrix(
        "integers",
        rows,
        inputs,
        IntegerTensor(flat, 4, unit_bytes=1, per_unit=2),
        ScaleTensor(powers, (1, _GROUP)),
        format=BLOCK_FORMATS["MXFP4"],
    )


def _sizes(parameter: PackedParameter) -> tuple[int, int, int]:
    """Return the number of experts, and the outputs and the inputs of each."""
    rows, inputs = parameter.shape
    experts = max(parameter.num_experts, 1)
    return experts, rows // experts, inputs
