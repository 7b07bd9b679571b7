"""The elementwise kernels as compiled libraries call them, against NumPy in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm_ffi
from numpy.typing import DTypeLike

from tests.model.kernels.kernel_calls import Array, call, empty, random

EPS = 1e-5


def rms_norm(x: Array, weight: Array) -> Array:
    wide = x.astype(np.float64)
    return np.asarray(wide / np.sqrt((wide**2).mean(-1, keepdims=True) + EPS) * weight)


def test_rms_norm() -> None:
    x, weight, out = random(2, 5, 100), random(100, seed=1), empty(2, 5, 100)

    call("rms_norm", x, weight, EPS, out)

    np.testing.assert_allclose(out, rms_norm(x, weight), rtol=1e-5, atol=1e-7)


def test_add_rms_norm_also_returns_the_sum() -> None:
    x, residual, weight = random(1, 5, 100), random(1, 5, 100, seed=1), random(100, seed=2)
    out, total = empty(1, 5, 100), empty(1, 5, 100)

    call("add_rms_norm", x, residual, weight, EPS, out, total)

    np.testing.assert_array_equal(total, x + residual)
    np.testing.assert_allclose(out, rms_norm(x + residual, weight), rtol=1e-5, atol=1e-7)


def test_add() -> None:
    a, b, out = random(3, 1, 70), random(3, 1, 70, seed=1), empty(3, 1, 70)

    call("add", a, b, out)

    np.testing.assert_array_equal(out, a + b)


def test_silu_mul_takes_the_gate_first() -> None:
    gate_up, out = random(1, 7, 2 * 50), empty(1, 7, 50)

    call("silu_mul", gate_up, out)

    gate, up = np.split(gate_up.astype(np.float64), 2, axis=-1)
    np.testing.assert_allclose(out, gate / (1 + np.exp(-gate)) * up, rtol=1e-5)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-6), (np.float16, 2e-3)])
def test_qk_norm_normalizes_queries_and_keys_only(dtype: DTypeLike, tolerance: float) -> None:
    qkv = random(1, 3, 4 + 2 * 2, 32)
    q_weight, k_weight = random(32, seed=1), random(32, seed=2)
    out = empty(1, 3, 8, 32, dtype=dtype)

    call("qk_norm", qkv, q_weight, k_weight, EPS, 4, 2, out)

    np.testing.assert_allclose(out[:, :, :4], rms_norm(qkv[:, :, :4], q_weight), atol=tolerance)
    np.testing.assert_allclose(out[:, :, 4:6], rms_norm(qkv[:, :, 4:6], k_weight), atol=tolerance)
    np.testing.assert_array_equal(out[:, :, 6:], qkv[:, :, 6:].astype(dtype))


def test_qk_norm_with_full_width_weights_normalizes_all_heads_at_once() -> None:
    qkv, out = random(1, 3, 4 + 2 * 2, 32), empty(1, 3, 8, 32)
    q_weight, k_weight = random(4 * 32, seed=1), random(2 * 32, seed=2)

    call("qk_norm", qkv, q_weight, k_weight, EPS, 4, 2, out)

    rows, inputs = out.reshape(3, 256), qkv.reshape(3, 256)
    np.testing.assert_allclose(rows[:, :128], rms_norm(inputs[:, :128], q_weight), atol=1e-6)
    np.testing.assert_allclose(rows[:, 128:192], rms_norm(inputs[:, 128:192], k_weight), atol=1e-6)
    np.testing.assert_array_equal(rows[:, 192:], inputs[:, 192:])


def test_gather_rows() -> None:
    x, out = random(1, 6, 40), empty(1, 3, 40)

    call("gather_rows", x, np.array([5, 0, 5], np.int32), out)

    np.testing.assert_array_equal(out, x[:, [5, 0, 5]])


def test_gather_rows_rejects_an_index_out_of_range() -> None:
    with pytest.raises(
        ValueError, match=r"aiomlc\.cpu\.gather_rows: rows must be in \[0, 6\), got 6"
    ):
        call("gather_rows", random(1, 6, 40), np.array([6], np.int32), empty(1, 1, 40))


def test_mismatched_arguments_are_reported_with_the_kernel() -> None:
    x, weight, out = random(2, 8), random(8), empty(2, 8)

    with pytest.raises(ValueError, match=r"rms_norm: weight has shape \[8\], expected \[4\]"):
        call("rms_norm", random(4, 4), weight, EPS, empty(4, 4))
    with pytest.raises(ValueError, match=r"rms_norm: out has 1 rows of 16, expected 2 of 8"):
        call("rms_norm", x, weight, EPS, empty(1, 16))
    with pytest.raises(ValueError, match="rms_norm: x must be float32"):
        call("rms_norm", x.astype(np.float16), weight, EPS, out)
    with pytest.raises(ValueError, match="rms_norm: x must be contiguous"):
        call("rms_norm", random(8, 2).T, weight, EPS, out)
    with pytest.raises(ValueError, match=r"qk_norm: k_weight has shape \[8\], expected \[16\]"):
        call("qk_norm", random(1, 8, 8), random(32), weight, EPS, 4, 2, empty(1, 8, 8))
    assert np.isnan(out).all()


def test_a_tensor_may_start_at_an_offset_in_its_memory() -> None:
    x = tvm_ffi.from_dlpack(random(4, 16)[2:])
    out = empty(2, 16)

    call("rms_norm", x, np.ones(16, np.float32), EPS, out)

    np.testing.assert_allclose(out, rms_norm(random(4, 16)[2:], np.ones(16)), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_gather_columns(dtype: type[np.floating[Any]]) -> None:
    x = np.random.default_rng(0).standard_normal((3, 40, 513)).astype(dtype)
    order = np.random.default_rng(1).permutation(513).astype(np.int32)
    out = np.empty_like(x)

    call("gather_columns", x, order, out)

    np.testing.assert_array_equal(out, x[..., order])


@pytest.mark.parametrize("column", [-1, 4])
def test_gather_columns_rejects_an_order_out_of_range(column: int) -> None:
    x = np.zeros((2, 4), np.float32)

    with pytest.raises(ValueError, match=rf"order must be in \[0, 4\), got {column}"):
        call("gather_columns", x, np.array([0, 1, column, 3], np.int32), x.copy())
