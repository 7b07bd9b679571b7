"""FP8 weights have the bits of MLC LLM's converter, also where they are subnormal or zero."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from aiomlc.runtime.native.library import load_native
from aiomlc.tools.mlc_format import FP8Dtype
from aiomlc.tools.quantizer import RangeError, fp8_scale, largest_magnitude, quantize_fp8
from tests.model.tools.fp8_reference import from_fp8, to_fp8, weight_scale

_LIMITS: dict[FP8Dtype, float] = {"float8_e4m3fn": 448.0, "float8_e5m2": 57344.0}


@pytest.fixture(scope="module", autouse=True)
def _native() -> None:
    load_native()


def halves() -> NDArray[np.float32]:
    """Return all finite float16 numbers."""
    numbers = np.arange(2**16, dtype=np.uint16).view(np.float16)
    return numbers[np.isfinite(numbers)].astype(np.float32)


@pytest.mark.parametrize("dtype", _LIMITS)
def test_every_float16_number_equals_the_reference(dtype: FP8Dtype) -> None:
    numbers = halves()
    numbers = numbers[np.abs(numbers) <= _LIMITS[dtype]].reshape(-1, 1)

    codes = quantize_fp8(numbers, dtype, None)

    np.testing.assert_array_equal(codes, to_fp8(numbers, dtype))


@pytest.mark.parametrize("size", [0.0, 1e-7, 1e-4, 0.02, 3.0, 9000.0])
def test_scaled_weights_equal_the_reference(size: float) -> None:
    random = np.random.default_rng(3)
    spread = np.exp(2 * random.standard_normal((64, 256)))
    weights = (size * random.standard_normal((64, 256)) * spread).clip(-6e4, 6e4)
    weights = weights.astype(np.float32)

    scale = fp8_scale(largest_magnitude(weights))
    codes = quantize_fp8(weights, "float8_e4m3fn", scale)

    assert scale == weight_scale(weights)
    exact = weights.astype(np.float16).astype(np.float32) / scale
    np.testing.assert_array_equal(codes, to_fp8(exact, "float8_e4m3fn"))


@pytest.mark.parametrize(("dtype", "smallest"), [("float8_e4m3fn", 2**-6), ("float8_e5m2", 2**-14)])
def test_numbers_below_the_normal_ones_lose_their_leading_bit(
    dtype: FP8Dtype, smallest: float
) -> None:
    numbers = smallest * np.array([[1.0, 0.75, -0.75, 0.5, 0.4, -0.4]], np.float32)

    meant = from_fp8(quantize_fp8(numbers, dtype, None), dtype)

    np.testing.assert_array_equal(meant, smallest * np.array([[1.0, 0.5, -0.5, 0.0, 0.0, 0.0]]))
    assert not np.signbit(meant[0, -1])


@pytest.mark.parametrize("value", [np.inf, np.nan, 1e5, 61440.0])
def test_a_weight_that_float8_e5m2_cannot_hold_is_an_error(value: float) -> None:
    with pytest.raises(RangeError, match="not finite, or outside of the range"):
        quantize_fp8(np.array([[1.0, value]], np.float32), "float8_e5m2", None)
