"""Rows of weights in the formats of an MLC directory."""

from __future__ import annotations

__all__ = (
    "RangeError",
    "fp8_scale",
    "largest_magnitude",
    "quantize_fp8",
    "quantize_progressive",
    "quantize_rows",
    "store_floats",
    "store_raw",
)

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from aiomlc.runtime.native.library import native_function
from aiomlc.tools.mlc_format import FP8Dtype, MLCFormat, ModelDtype
from aiomlc.weights.storage.stored_matrix import progressive_row_bytes

Bytes = NDArray[np.uint8]

_LARGEST_E4M3: Final = np.float16(448)
_SMALLEST_SCALE: Final = np.float16(1 / (448 * 512))
# Bits of the mantissa, and bias of the exponent.
_FP8_LAYOUTS: Final[dict[FP8Dtype, tuple[int, int]]] = {
    "float8_e4m3fn": (3, 7),
    "float8_e5m2": (2, 15),
}
_E5M2_INFINITY: Final = 0x7C


class RangeError(ValueError):
    """A value is not finite, or too large for the dtype of the model."""


def quantize_rows(
    rows: NDArray[np.float32], mlc_format: MLCFormat, importance: NDArray[np.float32] | None = None
) -> tuple[Bytes, Bytes]:
    """Quantize rows.

    Args:
        rows: `[rows, columns]`
        importance: Factors of the squared errors of each column, `[columns]`. With them, the scales
            of least squared error are searched for.

    Returns:
        The bytes of the words, `uint8[rows, bytes]`, and those of the scales.

    Raises:
        RangeError: If a weight is not finite, or too large for the dtype of the model.
    """
    count, columns = rows.shape
    words = np.empty((count, 4 * mlc_format.words(columns)), np.uint8)
    scales = np.empty((count, mlc_format.dtype_bytes * mlc_format.groups(columns)), np.uint8)
    is_in_range = native_function("aiomlc.weights.quantize_groups")(
        _tensor(rows),
        mlc_format.bits,
        mlc_format.dtype,
        None if importance is None else _tensor(importance),
        _tensor(words),
        _tensor(scales),
    )
    if not is_in_range:
        raise _range_error(mlc_format.dtype)

    if mlc_format.dtype == "float32":
        scales = store_floats(scales.view(np.float32), mlc_format.dtype)
    return words, scales


def quantize_progressive(rows: NDArray[np.float32]) -> Bytes:
    """Return the stored rows of `w4a8`, `uint8[rows, bytes]`.

    Raises:
        RangeError: If a weight is not finite.
    """
    stored = np.empty((len(rows), progressive_row_bytes(rows.shape[1])), np.uint8)
    quantize = native_function("aiomlc.weights.quantize_progressive")
    if not quantize(_tensor(rows), _tensor(stored)):
        raise _range_error("float32")

    return stored


def store_floats(values: NDArray[np.float32], dtype: ModelDtype) -> Bytes:
    """Return the bytes of float tensors as they are stored, `uint8[rows, bytes]`.

    Raises:
        RangeError: If a value is not finite, or too large for the dtype of the model.
    """
    # The files store float32 as bfloat16.
    stored_dtype = "bfloat16" if dtype == "float32" else dtype
    stored = np.empty((len(values), 2 * values.shape[1]), np.uint8)
    is_in_range = native_function("aiomlc.weights.round_floats")(
        _tensor(values.reshape(-1)), stored_dtype, _tensor(stored.reshape(-1))
    )
    if not is_in_range:
        raise _range_error(dtype)

    return stored


def store_raw(values: NDArray[np.float32]) -> Bytes:
    """Return the bytes of float32 tensors with all of their bits, `uint8[rows, bytes]`.

    Raises:
        RangeError: If a value is not finite.
    """
    if not np.isfinite(values).all():
        raise _range_error("float32")

    return np.ascontiguousarray(values).view(np.uint8)


def largest_magnitude(rows: NDArray[np.float32]) -> np.float16:
    """Return the largest magnitude of weights, rounded to float16.

    Raises:
        RangeError: If a weight is not finite, or too large for float16.
    """
    magnitudes = store_floats(rows, "float16").view(np.uint16) & 0x7FFF
    return np.float16(magnitudes.max().view(np.float16))


def fp8_scale(largest: np.float16) -> np.float32:
    """Return the scale of a matrix in `float8_e4m3fn`, given its largest magnitude.

    It is computed in float16.
    """
    return np.float32(max(largest / _LARGEST_E4M3, _SMALLEST_SCALE))


def quantize_fp8(rows: NDArray[np.float32], dtype: FP8Dtype, scale: np.float32 | None) -> Bytes:
    """Return rows in FP8, divided by the scale, with the bits that MLC LLM writes on a CPU.

    Its cast rounds to nearest, ties to even, but has no subnormal numbers: what would be one loses
    its leading bit (the code of `float8_e4m3fn` for 1.5 * 2**-7 is that of 0.5 * 2**-6), and
    smaller magnitudes are 0.

    Raises:
        RangeError: If a weight is not finite, or too large for float16 or `dtype`.
    """
    values = store_floats(rows, "float16").view(np.float16).astype(np.float32)
    if scale is not None:
        values /= scale
    mantissa, bias = _FP8_LAYOUTS[dtype]
    dropped = 23 - mantissa
    bits = values.view(np.uint32)
    sign = (bits >> 24).astype(np.uint8) & np.uint8(0x80)
    bits += ((bits >> dropped) & 1) + np.uint32((1 << (dropped - 1)) - 1)
    codes = ((bits & 0x7FFFFFFF) >> dropped).astype(np.int32) - ((127 - bias) << mantissa)
    if dtype == "float8_e5m2" and codes.max(initial=0) >= _E5M2_INFINITY:
        raise _range_error(dtype)

    return np.where(codes < 0, 0, codes.astype(np.uint8) | sign).astype(np.uint8)


def _range_error(dtype: ModelDtype | FP8Dtype) -> RangeError:
    return RangeError(f"a value is not finite, or outside of the range of {dtype}")


def _tensor(array: NDArray[Any]) -> object:
    import tvm_ffi  # Takes 0.1 s, so it is only imported when weights are converted.

    return tvm_ffi.from_dlpack(array)
