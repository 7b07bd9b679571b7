"""The quantizer gives the bits of a NumPy reference; the search gives a smaller error."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from aiomlc.tools.mlc_format import MLC_FORMATS
from aiomlc.tools.quantizer import RangeError, quantize_rows, store_floats
from tests.model.tools.group_reference import FORMATS, quantize_groups, unpack
from tests.model.weight_files import from_bf16, to_bf16

NAMES = ("q3f16_1", "q4f16_1", "q4f32_1", "q4bf16_1")


def quantized(
    weights: NDArray[np.float32], name: str, *, search: bool = False
) -> tuple[NDArray[Any], NDArray[np.float32]]:
    """Return the words and the scales as float32; those of q4f32_1 are stored as bfloat16."""
    importance = np.ones(weights.shape[1], np.float32) if search else None
    words, scales = quantize_rows(weights, MLC_FORMATS[name], importance)
    is_half = FORMATS[name].dtype == "float16"
    stored = scales.view(np.float16 if is_half else np.uint16)
    floats = stored.astype(np.float32) if is_half else from_bf16(stored)
    return words.view(np.uint32), floats


def as_stored(scales: NDArray[Any], name: str) -> NDArray[np.float32]:
    return from_bf16(to_bf16(scales)) if name == "q4f32_1" else scales


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("columns", [32, 40, 100, 480])
def test_the_bits_equal_the_reference(name: str, columns: int) -> None:
    random = np.random.default_rng(columns)
    weights = random.normal(0, 0.02, (256, columns)).astype(np.float32)
    weights[3] = 0
    weights[5] = np.arange(columns) % 15 - 7  # Ties.
    weights[6] *= 1e-6  # Subnormal scales of float16.
    weights[7, 1:] = 0

    words, scales = quantized(weights, name)

    expected_words, expected_scales = quantize_groups(weights, FORMATS[name])
    np.testing.assert_array_equal(words, expected_words)
    np.testing.assert_array_equal(scales, as_stored(expected_scales, name))


@settings(max_examples=200, deadline=None)
@given(
    name=st.sampled_from(NAMES),
    bits=st.lists(st.integers(0, 2**16 - 1), min_size=1, max_size=96),
)
def test_any_float16_weights_equal_the_reference(name: str, bits: list[int]) -> None:
    weights = np.array([bits], np.uint16).view(np.float16).astype(np.float32)
    weights[~np.isfinite(weights)] = 1

    words, scales = quantized(weights, name)

    expected_words, expected_scales = quantize_groups(weights, FORMATS[name])
    np.testing.assert_array_equal(words, expected_words)
    np.testing.assert_array_equal(scales, as_stored(expected_scales, name))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("distribution", ["normal", "laplace"])
def test_the_search_gives_a_smaller_error(name: str, distribution: str) -> None:
    random = np.random.default_rng(1)
    weights = getattr(random, distribution)(0, 0.02, (64, 480)).astype(np.float32)
    form = FORMATS[name]

    def group_errors(search: bool) -> NDArray[np.float64]:
        restored = unpack(*quantized(weights, name, search=search), weights.shape[1], form)
        squares = (form.round(weights) - restored).astype(np.float64) ** 2
        sums: NDArray[np.float64] = squares.reshape(64, -1, form.group).sum(axis=2)
        return sums

    default, found = group_errors(False), group_errors(True)

    assert found.sum() < 0.8 * default.sum()
    if name != "q4f32_1":  # Its scales are rounded again when they are stored.
        assert np.all(found <= default * (1 + 1e-5))


@pytest.mark.parametrize("name", NAMES)
def test_the_search_prefers_important_columns(name: str) -> None:
    random = np.random.default_rng(2)
    weights = random.normal(0, 0.02, (64, 480)).astype(np.float32)
    importance = np.exp2(random.uniform(-6, 6, 480)).astype(np.float32)
    form = FORMATS[name]

    def weighted_error(factors: NDArray[np.float32]) -> float:
        words, scales = quantize_rows(weights, MLC_FORMATS[name], factors)
        is_half = form.dtype == "float16"
        stored = scales.view(np.float16) if is_half else from_bf16(scales.view(np.uint16))
        restored = unpack(words.view(np.uint32), stored, 480, form)
        return float((np.square(form.round(weights) - restored) * importance).sum())

    assert weighted_error(importance) < 0.85 * weighted_error(np.ones(480, np.float32))


def test_the_search_keeps_groups_that_are_exact() -> None:
    weights = ((np.arange(64).reshape(2, 32) % 15 - 7) / 8).astype(np.float32)
    weights[1] = 0

    words, scales = quantized(weights, "q4f16_1", search=True)

    np.testing.assert_array_equal(unpack(words, scales, 32, FORMATS["q4f16_1"]), weights)


@pytest.mark.parametrize("value", [np.nan, np.inf, -65520.0, 1e30])
def test_a_value_outside_of_the_range_is_an_error(value: float) -> None:
    weights = np.zeros((2, 32), np.float32)
    weights[1, 7] = value

    with pytest.raises(RangeError, match="not finite, or outside of the range of float16"):
        store_floats(weights, "float16")
    with pytest.raises(RangeError, match="not finite, or outside of the range of float16"):
        quantize_rows(weights, MLC_FORMATS["q4f16_1"])


def test_every_float_is_rounded_to_even() -> None:
    halves = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float32)
    between = (halves[:-1] + halves[1:]) / 2
    values = np.concatenate([halves, between, -between, np.nextafter(between, 0)])[None]
    values = values.astype(np.float32)

    stored = store_floats(values, "float16").view(np.float16)

    np.testing.assert_array_equal(stored, values.astype(np.float16))
    np.testing.assert_array_equal(store_floats(values, "float32").view(np.uint16), to_bf16(values))
