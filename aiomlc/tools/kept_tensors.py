"""The tensors of a quantized checkpoint that an MLC directory has as they are."""

from __future__ import annotations

__all__ = ("kept_tensors",)

from collections.abc import Iterator, Sequence

from aiomlc.models import Parameter
from aiomlc.tools.mlc_format import MLCFormat, StoredDtype
from aiomlc.tools.output_tensor import OutputTensor, Rows
from aiomlc.weights.formats.source import Source, SourceTensor
from aiomlc.weights.storage.stored_matrix import FLOAT_TYPES
from aiomlc.weights.storage.tensors import (
    TensorLookup,
    require_dtype,
    require_shape,
    tensor_error,
)


def kept_tensors(
    parameter: Parameter, source: Source, mlc_format: MLCFormat, num_experts: int
) -> Iterator[OutputTensor]:
    """Yield the tensors of a quantized matrix of a layer.

    Args:
        source: The checkpoint, quantized with the format's `source_method`. Its tensors are valid.
        num_experts: The experts whose matrices the parameter has, 0 if it is another one.

    Raises:
        ModelLoadError: If the checkpoint stores the matrix in another way.
    """
    tensors = TensorLookup(source)
    name = parameter.mlc_name or parameter.name
    modules = [source.removesuffix(".weight") for source in parameter.sources]
    if mlc_format.source_method == "awq":
        yield from _awq_tensors(name, modules, tensors)
    else:
        yield from _block_tensors(name, modules, tensors, num_experts)


def _awq_tensors(
    name: str, modules: Sequence[str], tensors: TensorLookup
) -> Iterator[OutputTensor]:
    """Yield tensors `[inputs, outputs]`, whose parts stand side by side."""
    dtypes: dict[str, StoredDtype] = {"qweight": "uint32", "qzeros": "uint32", "scales": "float16"}
    for suffix, dtype in dtypes.items():
        parts = [tensors.get(f"{module}.{suffix}") for module in modules]
        columns = sum(part.shape[1] for part in parts)
        shape = parts[0].shape[0], columns
        rows = tuple(_all_rows(part) for part in parts)
        yield OutputTensor(f"{name}.{suffix}", shape, rows, dtype, is_side_by_side=True)


def _block_tensors(
    name: str, modules: Sequence[str], tensors: TensorLookup, num_experts: int
) -> Iterator[OutputTensor]:
    """Yield FP8 weights, and scales of blocks that no two parts share."""
    block = tensors.quantization.block
    assert block is not None
    weights = [tensors.get(f"{module}.weight") for module in modules]
    scales = [tensors.get(f"{module}.weight_scale_inv") for module in modules]
    for weight, scale in zip(weights, scales, strict=True):
        rows, columns = weight.shape
        require_dtype(weight, "f8e4m3")
        require_dtype(scale, *FLOAT_TYPES)
        require_shape(scale, (-(-rows // block[0]), -(-columns // block[1])))
        if rows % block[0] and len(weights) > 1:
            problem = f"its outputs must be a multiple of the {block[0]} of a block, got {rows}"
            raise tensor_error(weight, problem)

    yield _stacked(f"{name}.weight", weights, "float8_e4m3fn", num_experts)
    yield _stacked(f"{name}.weight_scale_inv", scales, "float32", num_experts)


def _stacked(
    name: str, parts: Sequence[SourceTensor], dtype: StoredDtype, num_experts: int
) -> OutputTensor:
    count, columns = sum(part.shape[0] for part in parts), parts[0].shape[1]
    shape = (num_experts, count // num_experts, columns) if num_experts else (count, columns)
    return OutputTensor(name, shape, tuple(_all_rows(part) for part in parts), dtype)


def _all_rows(tensor: SourceTensor) -> Rows:
    return Rows(tensor, 0, tensor.shape[0])
