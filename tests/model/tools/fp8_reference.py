"""MLC LLM's FP8 with one scale per matrix in NumPy, as its converter computes it on a CPU."""

from __future__ import annotations

__all__ = ("from_fp8", "to_fp8", "weight_scale")

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

_DTYPES: dict[str, Any] = {
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
}
#: Steps of a binade, and the exponent of the smallest normal number.
_NORMAL = {"float8_e4m3fn": (8, -6), "float8_e5m2": (4, -14)}


def weight_scale(weight: NDArray[np.float32]) -> np.float32:
    """Return the scale of a matrix in float8_e4m3fn; each operation is in float16."""
    largest = np.float16(np.abs(weight).max())
    return np.float32(np.maximum(largest / np.float16(448), np.float16(1 / (448 * 512))))


def to_fp8(values: NDArray[np.float32], dtype: str) -> NDArray[np.uint8]:
    """Return the codes of finite values.

    Normal numbers are rounded to nearest, ties to even. Those of the binade below them keep only
    the rounded fraction after their leading bit, and smaller ones become 0 without a sign.
    """
    steps, smallest = _NORMAL[dtype]
    exponents = np.floor(np.log2(np.maximum(np.abs(values), np.float32(1e-30))))
    fractions = np.rint((np.abs(values) / 2**exponents - 1) * steps)
    carried = exponents + (fractions == steps)
    codes = values.astype(_DTYPES[dtype]).view(np.uint8)
    low = np.where(fractions == steps, 0, fractions).astype(np.uint8)
    low |= np.signbit(values).astype(np.uint8) << 7
    codes = np.where(carried == smallest - 1, low, codes)
    return np.where(carried < smallest - 1, 0, codes).astype(np.uint8)


def from_fp8(codes: NDArray[np.uint8], dtype: str) -> NDArray[np.float32]:
    """Return the numbers that codes mean."""
    numbers: NDArray[Any] = codes.view(_DTYPES[dtype])
    return numbers.astype(np.float32)
