"""Rows of weights in the formats of an MLC directory."""

from __future__ import annotations

__all__ = ("RangeError", "quantize_rows", "store_floats")

from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiomlc.runtime.native.library import native_function
from aiomlc.tools.mlc_format import MLCFormat, ModelDtype

Bytes = NDArray[np.uint8]


class RangeError(ValueError):
    """A value is not finite, or too large for the dtype of the model."""


def quantize_rows(
    rows: NDArray[np.float32], mlc_format: MLCFormat, importance: NDArray[np.float32] | None = None
) -> tuple[Bytes, Bytes]:
    """Quantize rows.

    Args:
        rows: `[rows, columns]`
        mlc_format: A format with quantized matrices.
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


def _range_error(dtype: ModelDtype) -> RangeError:
    return RangeError(f"a value is not finite, or outside of the range of {dtype}")


def _tensor(array: NDArray[Any]) -> object:
    import tvm_ffi  # Takes 0.1 s, so it is only imported when weights are converted.

    return tvm_ffi.from_dlpack(array)
