"""The fused linear layers as compiled libraries call them, against the kernels that they fuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm_ffi
from numpy.typing import DTypeLike, NDArray

from aiomlc.runtime.native.library import load_native
from tests.model.kernels.test_linear import empty, pack_q4, random

load_native()

Array = NDArray[Any]
EPS = 1e-5
HIDDEN, OUTPUTS, INNER = 75, 37, 48
ROWS = pytest.mark.parametrize("rows", [1, 2, 5, 17])


def call(name: str, *arguments: object) -> None:
    function = tvm_ffi.get_global_func(f"aiomlc.cpu.{name}")
    assert function is not None
    function(*(tvm_ffi.from_dlpack(a) if isinstance(a, np.ndarray) else a for a in arguments))


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

    call("linear_q4", x, matrix, expected)
    call("add_norm_linear_q4", *inputs(rows), EPS, matrix, out, total)
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(total, expected_total)

    call("linear_bias_q4", x, matrix, bias, expected)
    call("add_norm_linear_bias_q4", *inputs(rows), EPS, matrix, bias, out, total)
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(total, expected_total)


@ROWS
def test_a_fused_mlp_equals_the_separate_kernels(rows: int) -> None:
    gate_up, _ = pack_q4(random(2 * INNER, HIDDEN))
    down, _ = pack_q4(random(HIDDEN, INNER, seed=5))
    x, expected_total = normed(rows)
    gates, gated, expected = empty(rows, 2 * INNER), empty(rows, INNER), empty(rows, HIDDEN)
    out, total = empty(rows, HIDDEN), empty(rows, HIDDEN)

    call("linear_q4", x, gate_up, gates)
    call("silu_mul", gates, gated)
    call("linear_q4", gated, down, expected)
    call("add_norm_feed_forward_silu_q4", *inputs(rows), EPS, gate_up, INNER, down, out, total)

    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(total, expected_total)


def test_matrices_of_the_wrong_size_are_rejected() -> None:
    matrix, _ = pack_q4(random(OUTPUTS, HIDDEN))
    gate_up, _ = pack_q4(random(2 * INNER, HIDDEN))
    down, _ = pack_q4(random(HIDDEN, INNER))
    out, total = empty(2, HIDDEN), empty(2, HIDDEN)

    with pytest.raises(ValueError, match="packed"):
        call("add_norm_linear_q4", *inputs(2), EPS, matrix, empty(2, 64), total)
    with pytest.raises(ValueError, match="gate_up"):
        call("add_norm_feed_forward_silu_q4", *inputs(2), EPS, gate_up, 64, down, out, total)
    with pytest.raises(ValueError, match="down"):
        call("add_norm_feed_forward_silu_q4", *inputs(2), EPS, gate_up, INNER, gate_up, out, total)
    with pytest.raises(ValueError, match="inner must be a positive multiple of 16, got 40"):
        call("add_norm_feed_forward_silu_q4", *inputs(2), EPS, gate_up, 40, down, out, total)


def test_a_residual_of_the_wrong_size_is_rejected() -> None:
    matrix, _ = pack_q4(random(OUTPUTS, HIDDEN))
    x, residual, weight = inputs(2)

    with pytest.raises(ValueError, match="residual"):
        call(
            "add_norm_linear_q4",
            x,
            residual[:1],
            weight,
            EPS,
            matrix,
            empty(2, OUTPUTS),
            empty(2, HIDDEN),
        )
