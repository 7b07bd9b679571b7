"""Matrices of integers with scales, as MLC LLM, AWQ, GPTQ and compressed-tensors store them."""

from __future__ import annotations

__all__ = (
    "find_awq",
    "find_compressed",
    "find_gptq",
    "find_mlc_groups",
    "find_progressive",
)

from dataclasses import replace

from aiomlc.weights.formats.source import SourceTensor
from aiomlc.weights.storage.stored_matrix import (
    CHANNEL_FORMAT,
    FLOAT_TYPES,
    MAX_CHANNEL_INPUTS,
    PROGRESSIVE_FORMAT,
    IntegerTensor,
    ScaleTensor,
    StoredMatrix,
    group_format,
    native_group,
    progressive_row_bytes,
)
from aiomlc.weights.storage.tensors import (
    TensorLookup,
    require_dtype,
    require_shape,
    shape_error,
    tensor_error,
)

_WORDS = ("u32", "i32")


def find_mlc_groups(
    tensors: TensorLookup, module: str, columns: int, rows: int | None
) -> StoredMatrix:
    """Return the matrix of a module that MLC LLM's group quantization has stored.

    Args:
        tensors: The tensors.
        module: The name without `.q_weight`.
        columns: The inputs of the matrix.
        rows: Its outputs, or None if only the tensor determines them.
    """
    words, scales = tensors.get(f"{module}.q_weight"), tensors.get(f"{module}.q_scale")
    bits, group = (3, 40) if tensors.quantization.name.startswith("q3") else (4, 32)
    words, scales = _flat(words), _flat(scales)
    groups = -(-columns // group)
    values = IntegerTensor(words, bits, per_unit=32 // bits, padding=group)
    _, width = values.shape(1, columns)
    # An embedding is stored by outputs nevertheless.
    if tensors.quantization.is_transposed and words.shape[:1] == (width,):
        values = replace(values, is_transposed=True)
    if rows is None:
        rows = _rows(words, values.is_transposed)
    require_dtype(words, "u32")
    require_shape(words, values.shape(rows, columns))
    require_dtype(scales, *FLOAT_TYPES)
    require_shape(scales, (groups, rows) if values.is_transposed else (rows, groups))
    size = 8 if group == 40 else group  # A scale of 40 inputs is that of five groups of 8.
    zero_point = 2 ** (bits - 1) - 1
    return StoredMatrix(
        "integers",
        rows,
        columns,
        values,
        ScaleTensor(scales, (1, group), values.is_transposed),
        format=group_format(bits, size, scales.dtype, zero_point),
    )


def find_progressive(
    tensors: TensorLookup, module: str, columns: int, rows: int | None
) -> StoredMatrix:
    """Return the matrix of a module of `w4a8`; the arguments are those of `find_mlc_groups`."""
    tensor = _flat(tensors.get(f"{module}.q_weight"))
    if rows is None:
        rows = _rows(tensor, is_transposed=False)
    require_dtype(tensor, "u8")
    require_shape(tensor, (rows, progressive_row_bytes(columns)))
    return StoredMatrix("i4progressive", rows, columns, tensor, format=PROGRESSIVE_FORMAT)


def find_awq(tensors: TensorLookup, module: str, columns: int) -> StoredMatrix:
    """Return the matrix of a module that AutoAWQ has stored for its kernel `gemm`."""
    words = tensors.get(f"{module}.qweight")
    values = IntegerTensor(
        words, 4, per_unit=8, axis="outputs", is_transposed=True, is_awq_order=True
    )
    require_dtype(words, *_WORDS)
    rows = 8 * words.shape[-1] if words.shape else 0
    require_shape(words, values.shape(rows, columns))
    group = _group(columns, tensors.quantization.group_size)
    zeros = IntegerTensor(
        tensors.get(f"{module}.qzeros"),
        4,
        per_unit=8,
        axis="outputs",
        is_transposed=True,
        is_awq_order=True,
    )
    return _with_groups(tensors, module, columns, values, zeros, group)


def find_gptq(tensors: TensorLookup, module: str, columns: int) -> StoredMatrix:
    """Return the matrix of a module that AutoGPTQ or GPTQModel has stored."""
    quantization = tensors.quantization
    bits = quantization.bits
    words = tensors.get(f"{module}.qweight")
    values = IntegerTensor(words, bits, is_transposed=True)
    require_dtype(words, *_WORDS)
    rows = words.shape[-1] if words.shape else 0
    require_shape(words, values.shape(rows, columns))
    group = _group(columns, quantization.group_size)
    zeros = IntegerTensor(tensors.get(f"{module}.qzeros"), bits, axis="outputs", is_transposed=True)
    return _with_groups(tensors, module, columns, values, zeros, group)


def _with_groups(
    tensors: TensorLookup,
    module: str,
    columns: int,
    values: IntegerTensor,
    zeros: IntegerTensor,
    group: int,
) -> StoredMatrix:
    """Return a matrix of AWQ or GPTQ, whose scales and zero points are by groups of inputs."""
    quantization = tensors.quantization
    rows = values.tensor.shape[-1] * (values.per_unit if values.axis == "outputs" else 1)
    groups = -(-columns // group)
    scales = tensors.get(f"{module}.scales")
    require_dtype(scales, *FLOAT_TYPES)
    require_shape(scales, (groups, rows))
    require_dtype(zeros.tensor, *_WORDS)
    require_shape(zeros.tensor, zeros.shape(rows, groups))
    order = None
    if quantization.has_input_order:
        order = tensors.get(f"{module}.g_idx")
        require_dtype(order, "i32")
        require_shape(order, (columns,))
    size = native_group(columns, group)
    return StoredMatrix(
        "integers",
        rows,
        columns,
        values,
        ScaleTensor(scales, (1, group), is_transposed=True),
        zeros,
        quantization.zero_point_offset,
        order,
        group_format(values.bits, size, scales.dtype, None),
    )


def find_compressed(tensors: TensorLookup, module: str, columns: int) -> StoredMatrix:
    """Return the matrix of a module that compressed-tensors has stored as integers."""
    if f"{module}.weight" in tensors and f"{module}.weight_packed" not in tensors:
        tensor = tensors.get(f"{module}.weight")
        values = IntegerTensor(tensor, 8, unit_bytes=1, per_unit=1, is_signed=True)
    else:
        tensor = tensors.get(f"{module}.weight_packed")
        values = _packed_values(tensor, columns)
    rows = tensor.shape[0]
    require_shape(tensor, values.shape(rows, columns))
    scales = tensors.get(f"{module}.weight_scale")
    require_dtype(scales, *FLOAT_TYPES)
    groups = scales.shape[-1] if len(scales.shape) == 2 else 1
    is_of_tensor = scales.shape in {(), (1,), (1, 1)}
    shapes = {(rows, groups), (rows,)}
    if groups == 0 or columns % groups or not (is_of_tensor or scales.shape in shapes):
        raise shape_error(scales, (rows, max(1, groups)))

    group = columns // groups
    zeros = _zero_points(tensors, module, values, (rows, groups))
    order = None
    if tensors.quantization.has_input_order and f"{module}.weight_g_idx" in tensors:
        order = tensors.get(f"{module}.weight_g_idx")
        require_dtype(order, "i32")
        require_shape(order, (columns,))
    if _is_channel(tensors, values, (rows, columns), groups) and zeros is None and order is None:
        matrix_format = CHANNEL_FORMAT
    else:
        zero_point = None if zeros is not None else 2 ** (values.bits - 1)
        size = _supported_group(scales, columns, group)
        matrix_format = group_format(values.bits, size, scales.dtype, zero_point)
    return StoredMatrix(
        "integers",
        rows,
        columns,
        values,
        ScaleTensor(scales, (rows if is_of_tensor else 1, group)),
        zeros,
        # Bytes are read with 128 added, and values with half their range.
        2 ** (values.bits - 1) - 128 if zeros is not None and zeros.is_signed else 0,
        groups=order,
        format=matrix_format,
    )


def _is_channel(
    tensors: TensorLookup, values: IntegerTensor, shape: tuple[int, int], groups: int
) -> bool:
    """Return whether products are integers: 8 bits with one scale per row, as are activations."""
    has_scale_per_row = groups == 1 and shape[1] <= MAX_CHANNEL_INPUTS
    return tensors.quantization.has_int8_activations and values.bits == 8 and has_scale_per_row


def _supported_group(scales: SourceTensor, columns: int, group: int) -> int:
    size = native_group(columns, group)
    if size not in (32, 64, 128, 256):
        raise tensor_error(scales, f"groups must have 32, 64, 128 or 256 inputs, got {size}")

    return size


def _packed_values(tensor: SourceTensor, columns: int) -> IntegerTensor:
    """Return words whose number of bits follows from their number."""
    require_dtype(tensor, "i32")
    for bits in (4, 8):
        values = IntegerTensor(tensor, bits, per_unit=32 // bits)
        if len(tensor.shape) == 2 and tensor.shape == values.shape(tensor.shape[0], columns):
            return values

    rows = tensor.shape[0] if tensor.shape else 0
    raise shape_error(tensor, (rows, -(-columns // 8)))


def _zero_points(
    tensors: TensorLookup, module: str, values: IntegerTensor, shape: tuple[int, int]
) -> IntegerTensor | None:
    """Return the zero points of an asymmetric quantization.

    They are packed as the values are, or bytes, as older versions of the program store them.
    """
    name = f"{module}.weight_zero_point"
    if name not in tensors:
        return None

    tensor = tensors.get(name)
    if tensor.dtype == "i8":
        zeros = IntegerTensor(tensor, 8, unit_bytes=1, per_unit=1, is_signed=True)
    else:
        require_dtype(tensor, "i32", "i8")
        zeros = IntegerTensor(tensor, values.bits, per_unit=32 // values.bits, axis="outputs")
    if tensor.shape != (expected := zeros.shape(*shape)):
        problem = f"wrong shape: expected {list(expected)}, got {list(tensor.shape)}"
        raise tensor_error(tensor, f"{problem}, and {module}.weight_scale has {list(shape)}")

    return zeros


def _group(columns: int, size: int) -> int:
    return columns if size < 0 else min(size, columns)


def _flat(tensor: SourceTensor) -> SourceTensor:
    """Return the tensor with one axis of rows, where all experts are in one tensor."""
    return tensor.with_flat_rows() if len(tensor.shape) > 2 else tensor


def _rows(tensor: SourceTensor, is_transposed: bool) -> int:
    if not tensor.shape:
        return 0

    return tensor.shape[-1] if is_transposed else tensor.shape[0]
