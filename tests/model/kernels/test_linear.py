"""The linear kernels as compiled libraries call them, against NumPy in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm_ffi

from aiomlc.models.parameters.matrix_format import MatrixFormat
from tests.model.kernels.kernel_calls import Array, call, empty, random

Packer = Callable[[Array], tuple[Array, Array]]

TILE = 16
GROUP = 32


def layout(*segments: tuple[str, int]) -> Any:  # noqa: ANN401 - tvm_ffi is untyped.
    """Return the argument that describes a matrix: the format and the rows of each segment."""
    pairs = [(MatrixFormat.parse(name).code, rows) for name, rows in segments]
    return tvm_ffi.Shape(sum(pairs, ()))


def padded(matrix: Array, rows: int, cols: int) -> Array:
    n, k = matrix.shape
    return np.pad(matrix, ((0, -n % rows), (0, -k % cols)))


def as_bytes(packed: Array) -> Array:
    return np.ascontiguousarray(packed).reshape(-1).view(np.uint8)


def tiles(weights: Array) -> Array:
    """Return tiles of 16 rows, each stored column by column."""
    wide = padded(weights, TILE, 1)
    return wide.reshape(-1, TILE, wide.shape[1]).transpose(0, 2, 1)


def pack_f32(weights: Array) -> tuple[Array, Array]:
    return as_bytes(tiles(weights)), weights.astype(np.float64)


def as_bf16(numbers: Array) -> Array:
    """Return the upper halves of float32 numbers, rounded to nearest, ties to even."""
    bits = numbers.view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def from_bf16(halves: Array) -> Array:
    return np.asarray((halves.astype(np.uint32) << 16).view(np.float32).astype(np.float64))


def pack_bf16(weights: Array) -> tuple[Array, Array]:
    """Return tiles of groups of 32 columns, in which pairs of columns are adjacent."""
    high = as_bf16(weights)
    wide = padded(high, TILE, GROUP)
    groups = wide.reshape(-1, TILE, wide.shape[1] // GROUP, GROUP // 2, 2)
    return as_bytes(groups.transpose(0, 2, 3, 1, 4)), from_bf16(high)


def pack_f16(weights: Array) -> tuple[Array, Array]:
    halves = weights.astype(np.float16)
    return as_bytes(tiles(halves)), halves.astype(np.float64)


def pack_q4(weights: Array) -> tuple[Array, Array]:
    rows, cols = weights.shape
    grouped = padded(weights, TILE, GROUP)
    grouped = grouped.reshape(grouped.shape[0], -1, GROUP)
    scale = (np.abs(grouped).max(-1, keepdims=True) / np.float32(7)).astype(np.float16)
    steps = grouped / np.where(scale == 0, 1, scale).astype(np.float32)
    unsigned = np.clip(np.round(steps + 7), 0, 14).astype(np.uint8)
    stored = (unsigned.astype(np.float64) - 7) * scale

    # [tile, row, group, half, vector, lane] -> [tile, group, half, vector, row, lane]
    lanes = unsigned.reshape(-1, TILE, unsigned.shape[1], 2, 4, 4).transpose(0, 2, 3, 4, 1, 5)
    nibbles = (lanes[:, :, 0] | lanes[:, :, 1] << 4).reshape(*lanes.shape[:2], 256)
    scales = scale.reshape(-1, TILE, scale.shape[1]).transpose(0, 2, 1)
    scale_bytes = np.ascontiguousarray(scales).view(np.uint8)
    packed = as_bytes(np.concatenate([nibbles, scale_bytes], axis=-1))
    return packed, stored.reshape(stored.shape[0], -1)[:rows, :cols]


def rounded(x: Array) -> Array:
    """Return the activations rounded to int8 per row and group, as the q4 kernels round them."""
    cols = x.shape[-1]
    wide = padded(x.reshape(-1, cols), 1, GROUP)
    grouped = wide.reshape(wide.shape[0], -1, GROUP)
    scale = np.abs(grouped).max(-1, keepdims=True) / np.float32(127)
    steps = np.round(grouped / np.where(scale == 0, 1, scale))
    values = (steps.astype(np.float64) * scale).reshape(wide.shape)[:, :cols]
    return np.asarray(values.reshape(x.shape))


def rounded_to_bf16(x: Array) -> Array:
    return from_bf16(as_bf16(x))


def unrounded(x: Array) -> Array:
    return x.astype(np.float64)


FORMATS = pytest.mark.parametrize(
    ("name", "pack", "round_input"),
    [
        ("f32", pack_f32, unrounded),
        ("f16", pack_f16, unrounded),
        ("bf16", pack_bf16, rounded_to_bf16),
        ("q4", pack_q4, rounded),
    ],
    ids=["f32", "f16", "bf16", "q4"],
)


def assert_close(actual: Array, weights: Array, x: Array, bias: Array | None = None) -> None:
    expected = x @ weights.T + (0 if bias is None else bias)
    # Rounding errors are relative to the terms of the sum, which may cancel out.
    size = np.abs(x) @ np.abs(weights).T + (0 if bias is None else np.abs(bias))
    unit = 1e-3 if actual.dtype == np.float16 else 2e-6
    assert np.all(np.abs(actual - expected) <= unit * size)


@FORMATS
@pytest.mark.parametrize("shape", [(1, 1), (48, 64), (37, 75), (130, 257)])
@pytest.mark.parametrize("batch", [1, 3, 16, 33])
def test_linear(
    name: str,
    pack: Packer,
    round_input: Callable[[Array], Array],
    shape: tuple[int, int],
    batch: int,
) -> None:
    packed, weights = pack(random(*shape))
    x, out = random(1, batch, shape[1], seed=1), empty(1, batch, shape[0])

    call("linear", x, packed, layout((name, out.shape[-1])), out)

    assert_close(out, weights, round_input(x))


@FORMATS
def test_linear_adds_the_bias(
    name: str, pack: Packer, round_input: Callable[[Array], Array]
) -> None:
    packed, weights = pack(random(37, 75))
    x, bias, out = random(5, 75, seed=1), random(37, seed=2), empty(5, 37)

    call("linear_bias", x, packed, layout((name, len(bias))), bias, out)

    assert_close(out, weights, round_input(x), bias)


@FORMATS
def test_linear_supports_float16_inputs_and_outputs(
    name: str, pack: Packer, round_input: Callable[[Array], Array]
) -> None:
    packed, weights = pack(random(37, 75))
    x, out = random(5, 75, seed=1).astype(np.float16), empty(5, 37, dtype=np.float16)

    call("linear", x, packed, layout((name, out.shape[-1])), out)

    assert_close(out, weights, round_input(x.astype(np.float32)))


@FORMATS
def test_other_rows_of_a_batch_do_not_change_a_bit(
    name: str, pack: Packer, round_input: Callable[[Array], Array]
) -> None:
    packed, _ = pack(random(37, 75))
    x, together = random(33, 75, seed=1), empty(33, 37)
    call("linear", x, packed, layout((name, 37)), together)

    for row in range(33):
        alone = empty(1, 37)
        call("linear", x[row : row + 1], packed, layout((name, 37)), alone)
        np.testing.assert_array_equal(alone[0], together[row])


@FORMATS
def test_embedding_rows_are_the_stored_weights(
    name: str, pack: Packer, round_input: Callable[[Array], Array]
) -> None:
    packed, weights = pack(random(37, 75))
    ids, out = np.array([36, 0, 17, 17], np.int32), empty(4, 75)

    call("embed", ids, packed, layout((name, 37)), out)

    np.testing.assert_array_equal(out, weights[ids].astype(np.float32))


def test_a_token_id_outside_of_the_vocabulary_is_rejected() -> None:
    packed, _ = pack_q4(random(32, 64))

    with pytest.raises(ValueError, match="32"):
        call("embed", np.array([32], np.int32), packed, layout(("q4", 32)), empty(1, 64))


def test_a_matrix_of_the_wrong_size_is_rejected() -> None:
    packed, _ = pack_q4(random(32, 64))

    with pytest.raises(ValueError, match="packed"):
        call("linear", random(1, 64), packed, layout(("q4", 48)), empty(1, 48))


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ((), "layout must be pairs"),
        ((2, 16, 2), "layout must be pairs"),
        ((2, 0), "layout has a segment of 0 rows"),
        ((77, 32), "unknown code of a matrix format: 77"),
    ],
)
def test_an_invalid_layout_is_rejected(numbers: tuple[int, ...], message: str) -> None:
    packed, _ = pack_q4(random(32, 64))

    with pytest.raises(ValueError, match=message):
        call("linear", random(1, 64), packed, tvm_ffi.Shape(numbers), empty(1, 32))


def test_segments_of_a_matrix_have_their_own_formats() -> None:
    q4, q4_weights = pack_q4(random(32, 64))
    f32, f32_weights = pack_f32(random(5, 64, seed=1))
    x, out = random(3, 64, seed=2), empty(3, 37)

    call("linear", x, np.concatenate([q4, f32]), layout(("q4", 32), ("f32", 5)), out)

    assert_close(out[:, :32], q4_weights, rounded(x))
    assert_close(out[:, 32:], f32_weights, x)
