"""The fused linear layers as compiled libraries call them, against the kernels that they fuse."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import DTypeLike

from aiomlc.models.parameters.matrix_format import MatrixFormat
from tests.model.kernels.kernel_calls import Array, call, empty, random
from tests.model.kernels.test_linear import layout, pack_f32, pack_q4

EPS = 1e-5
HIDDEN, OUTPUTS, INNER = 75, 37, 48
LAYOUT, GATE_UP, DOWN = layout(("q4", OUTPUTS)), layout(("q4", 2 * INNER)), layout(("q4", HIDDEN))
FEED_FORWARD = "add_norm_feed_forward_silu"
ROWS = pytest.mark.parametrize("rows", [1, 2, 5, 17])


def inputs(rows: int) -> tuple[Array, Array, Array]:
    return random(rows, HIDDEN, seed=1), random(rows, HIDDEN, seed=2), random(HIDDEN, seed=3)


def normed(rows: int) -> tuple[Array, Array]:
    out, total = empty(rows, HIDDEN), empty(rows, HIDDEN)
    call("add_rms_norm", *inputs(rows), EPS, out, total)
    return out, total


@ROWS
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_a_fused_norm_and_matrix_equal_the_separate_kernels(rows: int, dtype: DTypeLike) -> None:
    matrix, _ = pack_q4(random(OUTPUTS, HIDDEN))
    bias = random(OUTPUTS, seed=4)
    x, expected_total = normed(rows)
    expected, out = empty(rows, OUTPUTS, dtype=dtype), empty(rows, OUTPUTS, dtype=dtype)
    total = empty(rows, HIDDEN)

    call("linear", x, matrix, LAYOUT, expected)
    call("add_norm_linear", *inputs(rows), EPS, matrix, LAYOUT, out, total)
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(total, expected_total)

    call("linear_bias", x, matrix, LAYOUT, bias, expected)
    call("add_norm_linear_bias", *inputs(rows), EPS, matrix, LAYOUT, bias, out, total)
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(total, expected_total)


@ROWS
def test_a_fused_mlp_equals_the_separate_kernels(rows: int) -> None:
    gate_up, _ = pack_q4(random(2 * INNER, HIDDEN))
    down, _ = pack_q4(random(HIDDEN, INNER, seed=5))
    x, expected_total = normed(rows)
    gates, gated, expected = empty(rows, 2 * INNER), empty(rows, INNER), empty(rows, HIDDEN)
    out, total = empty(rows, HIDDEN), empty(rows, HIDDEN)

    call("linear", x, gate_up, GATE_UP, gates)
    call("silu_mul", gates, gated)
    call("linear", gated, down, DOWN, expected)
    call(FEED_FORWARD, *inputs(rows), EPS, gate_up, GATE_UP, down, DOWN, out, total)

    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(total, expected_total)


@ROWS
@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh", "quick_gelu"])
def test_a_fused_mlp_without_a_gate_equals_the_separate_kernels(rows: int, activation: str) -> None:
    up, _ = pack_f32(random(INNER, HIDDEN))
    down, _ = pack_f32(random(HIDDEN, INNER, seed=5))
    up_layout, down_layout = layout(("f32", INNER)), layout(("f32", HIDDEN))
    x, biases = random(rows, HIDDEN), (random(INNER, seed=6), random(HIDDEN, seed=7))
    inner, activated = empty(rows, INNER), empty(rows, INNER)
    expected, out = empty(rows, HIDDEN), empty(rows, HIDDEN)

    call("linear_bias", x, up, up_layout, biases[0], inner)
    call(activation, inner, activated)
    call("linear_bias", activated, down, down_layout, biases[1], expected)
    fused = f"feed_forward_{activation}"
    call(fused, x, up, up_layout, biases[0], down, down_layout, biases[1], out)

    np.testing.assert_array_equal(out, expected)
    with pytest.raises(ValueError, match="up_bias"):
        call(fused, x, up, up_layout, biases[1], down, down_layout, biases[1], out)


def test_matrices_of_the_wrong_size_are_rejected() -> None:
    matrix, _ = pack_q4(random(OUTPUTS, HIDDEN))
    gate_up, _ = pack_q4(random(2 * INNER, HIDDEN))
    down, _ = pack_q4(random(HIDDEN, INNER))
    out, total = empty(2, HIDDEN), empty(2, HIDDEN)

    norm = (*inputs(2), EPS)

    with pytest.raises(ValueError, match="packed"):
        call("add_norm_linear", *norm, matrix, layout(("q4", 64)), empty(2, 64), total)
    with pytest.raises(ValueError, match="gate_up"):
        call(FEED_FORWARD, *norm, gate_up, layout(("q4", 128)), down, DOWN, out, total)
    with pytest.raises(ValueError, match="down"):
        call(FEED_FORWARD, *norm, gate_up, GATE_UP, gate_up, DOWN, out, total)
    with pytest.raises(ValueError, match="gate_up must have a multiple of 32 rows, got 80"):
        call(FEED_FORWARD, *norm, gate_up, layout(("q4", 80)), down, DOWN, out, total)


@pytest.mark.parametrize("formats", [("f32",), ("q4", "u4g32f16z7"), ("q4", "i8channel")])
def test_layouts_without_a_fused_kernel_are_rejected(formats: tuple[str, ...]) -> None:
    mixed = layout(*((name, 16) for name in formats))
    matrix, out, total = random(OUTPUTS, HIDDEN), empty(2, HIDDEN), empty(2, HIDDEN)

    with pytest.raises(ValueError, match="layout must have only q4, only int8"):
        call("add_norm_linear", *inputs(2), EPS, matrix, mixed, out, total)


def test_inputs_whose_sums_might_overflow_are_rejected() -> None:
    x, out = random(1, 65537), empty(1, 16)
    matrix = np.zeros(MatrixFormat.parse("i8channel").packed_bytes(16, 65537), np.uint8)

    with pytest.raises(ValueError, match=r"i8channel and 65537 inputs, expected at most 65536"):
        call("linear", x, matrix, layout(("i8channel", 16)), out)


def test_a_residual_of_the_wrong_size_is_rejected() -> None:
    matrix, _ = pack_q4(random(OUTPUTS, HIDDEN))
    x, residual, weight = inputs(2)

    with pytest.raises(ValueError, match="residual"):
        call(
            "add_norm_linear",
            x,
            residual[:1],
            weight,
            EPS,
            matrix,
            LAYOUT,
            empty(2, OUTPUTS),
            empty(2, HIDDEN),
        )
