"""The stored keys and values of TVM's paged KV cache, and the rejection of invalid arguments."""

from __future__ import annotations

import numpy as np
import pytest
import tvm_ffi

from tests.model.kernels.paged_cache import (
    HEAD_DIM,
    HEADS,
    KV_HEADS,
    PLAIN,
    QUERY_HEADS,
    SCALE,
    VOCABULARY,
    Cache,
    four_bits,
    kernel,
    native,
    random_tokens,
    rotated,
    same_bits,
)


@pytest.mark.parametrize("window", [(-1, 2), (4, -1)])
def test_a_negative_window_or_sink_count_is_rejected(window: tuple[int, int]) -> None:
    cache = Cache(window=window)
    cache.add(0)

    with pytest.raises(ValueError, match=f"sinks must be >= 0, got {window[0]} and {window[1]}"):
        cache.step({0: [1]})


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ((-1.0, 0, 0), "soft_cap must be >= 0, got -1"),
        ((0.0, -1, 4), "rotation begin and size must be >= 0, got -1 and 4"),
        ((0.0, 5, HEAD_DIM // 2), "rotation must have at least"),
    ],
)
def test_invalid_settings_of_a_layer_are_rejected(
    settings: tuple[float, int, int], problem: str
) -> None:
    cache = Cache()
    cache.add(0)
    native("vm.builtin.kv_state_begin_forward")(cache._kv, tvm_ffi.Shape((0,)), tvm_ffi.Shape((1,)))
    rows = tvm_ffi.from_dlpack(np.zeros((1, HEADS, HEAD_DIM), np.float16))
    output = tvm_ffi.from_dlpack(np.zeros((1, QUERY_HEADS, HEAD_DIM), np.float16))

    with pytest.raises(ValueError, match=problem):
        kernel("kv_layer_attention")(cache._kv, 0, SCALE, 0, 0, *settings, 0, rows, output)


def test_the_cache_stores_rotated_keys_and_plain_values() -> None:
    tokens = random_tokens(37, seed=7)
    cache = Cache()
    cache.add(0)
    cache.step({0: tokens})

    keys, values = cache.keys_and_values(0, 37)

    for layer, ids in enumerate((-1 - np.asarray(tokens), np.asarray(tokens))):
        rows = VOCABULARY.astype("float16")[ids]
        expected = rotated(rows[:, QUERY_HEADS : QUERY_HEADS + KV_HEADS])
        np.testing.assert_allclose(keys[layer], expected, atol=3e-3)
        assert same_bits(values[layer], np.ascontiguousarray(rows[:, QUERY_HEADS + KV_HEADS :]))


def test_an_8_bit_cache_stores_the_nearest_values() -> None:
    tokens = random_tokens(37, seed=7)
    cache = Cache("int8 float32")
    cache.add(0)
    cache.step({0: tokens})

    keys, values = cache.keys_and_values(0, 37)

    rows = VOCABULARY.astype(np.float32)[tokens]
    exact = (
        (keys, rotated(rows[:, QUERY_HEADS : QUERY_HEADS + KV_HEADS])),
        (values, rows[:, QUERY_HEADS + KV_HEADS :]),
    )
    for stored, floats in exact:
        steps = np.ascontiguousarray(stored[-1, ..., HEAD_DIM:]).view(np.float32)
        np.testing.assert_allclose(steps[..., 0], np.abs(floats).max(-1) / 127, rtol=1e-5)
        error = np.abs(stored[-1, ..., :HEAD_DIM] * steps - floats)
        assert (error <= 0.5001 * steps).all()
        assert (np.abs(stored[-1, ..., :HEAD_DIM]).max(-1) == 127).all()


def test_a_4_bit_cache_stores_the_nearest_levels_of_rotated_rows() -> None:
    tokens = random_tokens(37, seed=7)
    cache = Cache("int4 float32")
    cache.add(0)
    cache.step({0: tokens})

    keys, values = cache.keys_and_values(0, 37)

    rows = VOCABULARY.astype(np.float32)[tokens]
    exact = (
        (keys, rotated(rows[:, QUERY_HEADS : QUERY_HEADS + KV_HEADS]), 1),
        (values, rows[:, QUERY_HEADS + KV_HEADS :], HEAD_DIM),
    )
    for stored, floats, divisor in exact:
        pairs = stored[-1, ..., : HEAD_DIM // 2]
        levels = np.stack([pairs & 15, pairs >> 4], -1).reshape(floats.shape)
        scales = np.ascontiguousarray(stored[-1, ..., HEAD_DIM // 2 :]).view(np.float32)
        expected_levels, expected_scales = four_bits(floats)
        np.testing.assert_allclose(scales, expected_scales / divisor, rtol=1e-5)
        assert np.mean(levels == expected_levels) > 0.999
        assert np.abs(levels - expected_levels).max() <= 1


@pytest.mark.parametrize("dtype", ["int8", "int4"])
@pytest.mark.parametrize("value", [0.0, np.nan, np.inf])
def test_a_cache_of_integers_keeps_zeros_and_propagates_non_finite_values(
    value: float, dtype: str
) -> None:
    cache = Cache(dtype)
    cache.add(0)
    cache._vocabulary[:] = value

    output = cache.step({0: [1, 2, 3]})[0]

    assert (output == 0).all() if value == 0 else np.isnan(output).all()


def test_tvms_own_attention_rejects_an_8_bit_cache() -> None:
    cache = Cache("int8")
    cache.add(0)
    rows = tvm_ffi.from_dlpack(np.zeros((1, HEADS, HEAD_DIM + 4), np.int8))
    output = tvm_ffi.from_dlpack(np.zeros((1, QUERY_HEADS, HEAD_DIM + 4), np.int8))
    native("vm.builtin.kv_state_begin_forward")(cache._kv, tvm_ffi.Shape((0,)), tvm_ffi.Shape((1,)))

    with pytest.raises(ValueError, match="must be called through the attention of its type"):
        native("vm.builtin.attention_kv_cache_attention_with_fused_qkv")(
            cache._kv, 0, SCALE, rows, output
        )


@pytest.mark.parametrize(
    ("dtype", "head_dim", "problem"),
    [
        ("int8", 2, "is too small for a KV cache of int8, got 2"),
        ("int4", 48, "must be a multiple of 32 for a KV cache of int4, got 48"),
    ],
)
def test_heads_that_a_cache_of_integers_cannot_store_are_rejected(
    dtype: str, head_dim: int, problem: str
) -> None:
    rows = tvm_ffi.from_dlpack(np.zeros((1, HEADS, head_dim), np.float16))

    with pytest.raises(ValueError, match=problem):
        kernel(f"kv_{dtype}_attention")(Cache(dtype)._kv, 0, SCALE, 0, 0, *PLAIN, rows, rows)


def test_compacting_copies_slots() -> None:
    pages = np.random.default_rng(0).normal(size=(3, 2, 2, 16, 4)).astype(np.float16)
    expected = pages.copy()
    for target, source in (((0, 5), (2, 1)), ((1, 15), (0, 3))):
        # The keys of a head are stored with the slots as the last axis.
        keys, old_keys = (array[:, 0].reshape(3, 2, 4, 16) for array in (expected, pages))
        keys[target[0], :, :, target[1]] = old_keys[source[0], :, :, source[1]]
        expected[target[0], 1, :, target[1]] = pages[source[0], 1, :, source[1]]

    kernel("kv_compact_copy")(
        tvm_ffi.from_dlpack(pages),
        tvm_ffi.from_dlpack(np.array([0, 1, 2], np.int32)),
        tvm_ffi.from_dlpack(np.array([[33, 3], [5, 31]], np.int32)),
        2,
    )

    assert same_bits(pages, expected)


def test_unsupported_kinds_of_attention_raise() -> None:
    with pytest.raises(RuntimeError, match="sliding windows"):
        kernel("attention_unsupported")(1, None, "anything")


def test_a_tensor_of_the_wrong_shape_is_reported_with_the_kernel() -> None:
    pages = tvm_ffi.from_dlpack(np.zeros((3, 2, 2, 8, 4), np.float16))

    with pytest.raises(ValueError, match=r"aiomlc\.cpu\.kv_copy_page: pages has shape"):
        kernel("kv_copy_page")(pages, 0, 1, 1)


def test_a_slot_outside_of_the_pages_is_rejected() -> None:
    pages = np.zeros((3, 2, 2, 16, 4), np.float16)
    new = tvm_ffi.from_dlpack(np.ones((1, 2, 4), np.float16))

    with pytest.raises(ValueError, match=r"slot ids must be in \[-1, 48\), got 48"):
        kernel("kv_append")(
            tvm_ffi.from_dlpack(pages), new, new, tvm_ffi.from_dlpack(np.array([48], np.int32))
        )

    assert not pages.any()
