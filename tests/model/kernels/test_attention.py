"""The attention kernels under TVM's own paged KV cache."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import tvm_ffi
from numpy.typing import NDArray

from aiomlc.runtime.native.library import load_native

load_native()

QUERY_HEADS = 4
KV_HEADS = 2
HEAD_DIM = 16
HEADS = QUERY_HEADS + 2 * KV_HEADS
LAYERS = 2
SCALE = HEAD_DIM**-0.5
PLAIN = (0.0, 0, 0)  # No softcapping, and the RoPE table that all layers share.
INVERSE_FREQUENCIES = (100.0 ** (-np.arange(HEAD_DIM // 2) / (HEAD_DIM // 2))).astype(np.float32)
VOCABULARY = np.random.default_rng(0).normal(size=(500, HEADS, HEAD_DIM))

Tokens = list[int]
Array = NDArray[Any]


def native(name: str) -> tvm_ffi.Function:
    function = tvm_ffi.get_global_func(name)
    assert function is not None
    return function


def kernel(name: str) -> tvm_ffi.Function:
    return native(f"aiomlc.cpu.{name}")


class Cache:
    """TVM's cache with the CPU kernels. VOCABULARY has the query, key and value of each token.

    The dtype "int8" is an 8-bit cache with float16 queries, "int8 float32" with float32 queries.
    """

    def __init__(
        self, dtype: str = "float16", pages: int = 256, window: tuple[int, int] | None = None
    ) -> None:
        self._window = window
        self._is_8_bit = dtype.startswith("int8")
        row = HEAD_DIM + 4 if self._is_8_bit else HEAD_DIM
        unsupported = kernel("attention_unsupported")
        self._vocabulary = VOCABULARY.astype(compute_dtype(dtype))
        self._stored = (row, "int8" if self._is_8_bit else dtype)
        self._kv = native("vm.builtin.paged_attention_kv_cache_create")(
            tvm_ffi.Shape((16, 16 * pages, 1024, 16, 0, 1024)),
            tvm_ffi.Shape((0, LAYERS)),
            QUERY_HEADS,
            KV_HEADS,
            row,
            row,
            tvm_ffi.Shape((0,) * LAYERS),
            False,  # No disaggregation.
            1,  # Rotary embedding before the cache.
            1.0,
            100.0,
            tvm_ffi.from_dlpack(np.append(INVERSE_FREQUENCIES, np.float32(1))),
            tvm_ffi.from_dlpack(np.zeros((), self._stored[1])),
            kernel("kv_append"),
            None,
            ["tirx", kernel("attention_ragged")],
            ["tirx", kernel("attention_prefill")],
            ["tirx", kernel("attention_decode")],
            ["tirx", unsupported],
            ["tirx", unsupported],
            ["tirx", unsupported],
            ["tirx", unsupported],
            [],
            [kernel("attention_merge")],
            kernel("kv_split_rotary"),
            kernel("kv_copy_page"),
            kernel("kv_debug_get"),
            kernel("kv_compact_copy"),
        )

    def add(self, sequence: int) -> None:
        native("vm.builtin.kv_state_add_sequence")(self._kv, sequence)

    def remove(self, sequence: int) -> None:
        native("vm.builtin.kv_state_remove_sequence")(self._kv, sequence)

    def fork(self, parent: int, child: int, position: int = -1) -> None:
        native("vm.builtin.kv_state_fork_sequence")(self._kv, parent, child, position)

    def pop(self, sequence: int, count: int) -> None:
        native("vm.builtin.kv_state_popn")(self._kv, sequence, count)

    def step(self, tokens: Mapping[int, Sequence[int]]) -> dict[int, Array]:
        """Append tokens to some sequences; return the last layer's attention output of each.

        Layer 0 uses the vocabulary in reverse, so that a mix-up of layers is detected.
        """
        lengths = [len(new) for new in tokens.values()]
        ids = np.concatenate([np.asarray(new) for new in tokens.values()])
        output = np.full((len(ids), QUERY_HEADS, HEAD_DIM), np.nan, self._vocabulary.dtype)
        native("vm.builtin.kv_state_begin_forward")(
            self._kv, tvm_ffi.Shape(tuple(tokens)), tvm_ffi.Shape(tuple(lengths))
        )
        for layer in range(LAYERS):
            rows = self._vocabulary[ids if layer == LAYERS - 1 else -1 - ids]
            self._attend(layer, tvm_ffi.from_dlpack(rows), tvm_ffi.from_dlpack(output))
        native("vm.builtin.kv_state_end_forward")(self._kv)
        return dict(zip(tokens, np.split(output, np.cumsum(lengths)[:-1]), strict=True))

    def _attend(self, layer: int, rows: tvm_ffi.Tensor, output: tvm_ffi.Tensor) -> None:
        # Layer 0 has no window: the windows of layers are independent.
        window = (0, 0) if self._window is None or layer == 0 else self._window
        if self._is_8_bit:
            kernel("kv_int8_attention")(self._kv, layer, SCALE, *window, *PLAIN, rows, output)
        elif self._window is None or layer == 0:
            name = "vm.builtin.attention_kv_cache_attention_with_fused_qkv"
            native(name)(self._kv, layer, SCALE, rows, output)
        else:
            call = kernel("kv_layer_attention")
            call(self._kv, layer, SCALE, *self._window, *PLAIN, rows, output)

    def keys_and_values(self, sequence: int, length: int) -> tuple[Array, Array]:
        shape = (LAYERS, length, KV_HEADS, self._stored[0])
        keys = np.zeros(shape, self._stored[1])
        values = np.zeros(shape, self._stored[1])
        native("vm.builtin.attention_kv_cache_debug_get_kv")(
            self._kv, sequence, 0, length, tvm_ffi.from_dlpack(keys), tvm_ffi.from_dlpack(values)
        )
        return keys, values


def compute_dtype(dtype: str) -> str:
    """Return the dtype of queries and outputs for a cache of `dtype`."""
    return {"int8": "float16", "int8 float32": "float32"}.get(dtype, dtype)


caches = pytest.mark.parametrize("dtype", ["float16", "int8"])
# Size of the window, and number of attention sinks.
windows = pytest.mark.parametrize("window", [None, (1, 0), (7, 3), (16, 0), (30, 17), (100, 4)])


def rotated(rows: Array) -> Array:
    """Rotate each row by its index, in float64."""
    angles = np.arange(len(rows))[:, None, None] * INVERSE_FREQUENCIES.astype(np.float64)
    low, high = np.split(rows.astype(np.float64), 2, axis=-1)
    return np.concatenate(
        [
            low * np.cos(angles) - high * np.sin(angles),
            high * np.cos(angles) + low * np.sin(angles),
        ],
        axis=-1,
    )


def as_stored(rows: Array, dtype: str) -> Array:
    """Return keys or values rounded as a cache of `dtype` stores them, in float64."""
    floats = rows.astype(compute_dtype(dtype)).astype(np.float64)
    if not dtype.startswith("int8"):
        return floats

    step = np.abs(floats).max(-1, keepdims=True) / 127
    return np.asarray(np.rint(floats / step) * step)


def oracle(tokens: Sequence[int], dtype: str, window: tuple[int, int] | None = None) -> Array:
    """Return the attention of a sequence in float64, over the values that the cache stores."""
    rows = VOCABULARY.astype(compute_dtype(dtype))[list(tokens)]
    queries, keys, values = np.split(rows, [QUERY_HEADS, QUERY_HEADS + KV_HEADS], axis=1)
    group = QUERY_HEADS // KV_HEADS
    q = rotated(queries).astype(compute_dtype(dtype)).astype(np.float64)
    k = as_stored(rotated(keys), dtype).repeat(group, axis=1)
    v = as_stored(values, dtype).repeat(group, axis=1)
    scores = np.einsum("qhd,khd->hqk", q, k) * SCALE
    query, key = np.indices(scores.shape[1:])
    hidden = key > query
    if window is not None:
        hidden |= (key <= query - window[0]) & (key >= window[1])
    scores[:, hidden] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return np.asarray(np.einsum("hqk,khd->qhd", weights, v))


def attend_alone(
    tokens: Sequence[int], dtype: str = "float16", window: tuple[int, int] | None = None
) -> Array:
    """Return the output for a sequence that is alone in a new cache, computed in one step."""
    cache = Cache(dtype, window=window)
    cache.add(0)
    return cache.step({0: tokens})[0]


def same_bits(actual: Array, expected: Array) -> bool:
    return actual.dtype == expected.dtype and actual.tobytes() == expected.tobytes()


def random_tokens(count: int, seed: int = 1) -> Tokens:
    return [int(token) for token in np.random.default_rng(seed).integers(0, 500, count)]


def chunks_of(tokens: Tokens, sizes: Iterable[int]) -> Iterable[Tokens]:
    begin = 0
    for size in sizes:
        yield tokens[begin : begin + size]
        begin += size


@windows
@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    # A key that differs in the last bit of a float may be rounded to the next int8 value.
    [("float16", 3e-3), ("float32", 5e-6), ("int8", 1e-2), ("int8 float32", 1e-2)],
)
def test_attention_matches_the_float64_oracle(
    dtype: str, tolerance: float, window: tuple[int, int] | None
) -> None:
    tokens = random_tokens(75)

    output = attend_alone(tokens, dtype, window)

    np.testing.assert_allclose(output, oracle(tokens, dtype, window), atol=tolerance)


@pytest.mark.parametrize(("dtype", "exact"), [("int8", "float16"), ("int8 float32", "float32")])
def test_an_8_bit_cache_has_an_error_below_one_percent(dtype: str, exact: str) -> None:
    tokens = random_tokens(300)

    difference = attend_alone(tokens, dtype).astype(np.float64) - oracle(tokens, exact)

    assert np.sqrt(np.mean(difference**2)) < 0.01
    assert np.abs(difference).max() < 0.1


@windows
@pytest.mark.parametrize("dtype", ["float16", "float32", "int8", "int8 float32"])
@pytest.mark.parametrize(
    "sizes",
    [(1,) * 75, (5, 14, 1, 1, 54), (16, 16, 16, 27), (15, 1, 1, 58), (74, 1), (1, 74), (40, 35)],
)
def test_chunked_prefill_does_not_change_a_bit(
    dtype: str, sizes: tuple[int, ...], window: tuple[int, int] | None
) -> None:
    tokens = random_tokens(75)
    cache = Cache(dtype, window=window)
    cache.add(0)

    outputs = [cache.step({0: chunk})[0] for chunk in chunks_of(tokens, sizes)]

    assert same_bits(np.concatenate(outputs), attend_alone(tokens, dtype, window))


@caches
@pytest.mark.parametrize("window", [None, (600, 5), (30, 0)])
def test_a_context_of_two_attention_chunks_does_not_change_a_bit(
    window: tuple[int, int] | None, dtype: str
) -> None:
    tokens = random_tokens(1020)
    expected = attend_alone(tokens, dtype, window)
    cache = Cache(dtype, window=window)
    cache.add(0)

    sizes = (505, 5, 1, 1, 1, 1, 20, 486)  # The kernel's chunks of the context have 512 positions.
    outputs = [cache.step({0: chunk})[0] for chunk in chunks_of(tokens, sizes)]
    cache.fork(0, 1, 1019)
    forked = cache.step({1: tokens[-1:]})[1]

    assert same_bits(np.concatenate(outputs), expected)
    assert same_bits(forked, expected[-1:])
    np.testing.assert_allclose(expected, oracle(tokens, dtype, window), atol=1e-2)


@caches
def test_other_sequences_in_the_batch_do_not_change_a_bit(dtype: str) -> None:
    sequences = {i: random_tokens(60, seed=i) for i in range(4)}
    cache = Cache(dtype)
    outputs: dict[int, list[Array]] = {i: [] for i in sequences}
    plan: list[dict[int, int]] = [
        {0: 20},
        {0: 1, 1: 33},
        {1: 1, 0: 1},
        {2: 5, 0: 1, 3: 17},
        {0: 1, 1: 1, 2: 1, 3: 1},
        {3: 1, 2: 16, 1: 1},
    ]
    positions = dict.fromkeys(sequences, 0)
    for i in sequences:
        cache.add(i)

    for lengths in plan:
        new = {i: sequences[i][positions[i] : positions[i] + n] for i, n in lengths.items()}
        for i, output in cache.step(new).items():
            outputs[i].append(output)
            positions[i] += lengths[i]

    for i, tokens in sequences.items():
        assert same_bits(np.concatenate(outputs[i]), attend_alone(tokens[: positions[i]], dtype))


@caches
@pytest.mark.parametrize("position", [1, 5, 16, 17, 32, 36, 37])
def test_a_fork_equals_an_independent_sequence(position: int, dtype: str) -> None:
    parent = random_tokens(37, seed=2)
    child = parent[:position]
    cache = Cache(dtype)
    cache.add(0)
    cache.step({0: parent})
    cache.fork(0, 1, position)

    for lengths in ({0: 1, 1: 1}, {0: 3, 1: 1}, {1: 20}, {0: 1, 1: 1}):
        new = {i: random_tokens(n, seed=10 * i + n) for i, n in lengths.items()}
        outputs = cache.step(new)
        for i, history in ((0, parent), (1, child)):
            if i not in new:
                continue
            history += new[i]
            assert same_bits(outputs[i], attend_alone(history, dtype)[-len(new[i]) :])


@caches
@pytest.mark.parametrize("shared", [64, 70, 333])
def test_many_forks_of_a_long_prefix_equal_independent_sequences(shared: int, dtype: str) -> None:
    prefix = random_tokens(shared, seed=3)
    cache = Cache(dtype)
    cache.add(0)
    cache.step({0: prefix})
    histories = {0: prefix.copy()}
    for child in range(1, 12):
        cache.fork(0, child)
        histories[child] = prefix.copy()

    for round_ in range(3):
        new = {i: random_tokens(1, seed=100 * round_ + i) for i in histories}
        outputs = cache.step(new)
        for i, output in outputs.items():
            histories[i] += new[i]
            assert same_bits(output, attend_alone(histories[i], dtype)[-1:])


@caches
def test_deeply_nested_forks_equal_independent_sequences(dtype: str) -> None:
    history = random_tokens(20, seed=4)
    cache = Cache(dtype)
    cache.add(0)
    cache.step({0: history})

    for child in range(1, 12):
        cache.fork(child - 1, child)
        new = random_tokens(11, seed=child)
        history += new

        output = cache.step({child: new})[child]

        assert same_bits(output, attend_alone(history, dtype)[-11:])
    one = random_tokens(1)
    assert same_bits(cache.step({11: one})[11], attend_alone(history + one, dtype)[-1:])


@caches
@pytest.mark.parametrize("count", [1, 4, 5, 20, 21, 36])
def test_popped_tokens_do_not_affect_later_steps(count: int, dtype: str) -> None:
    history = random_tokens(37, seed=5)
    cache = Cache(dtype)
    cache.add(0)
    cache.step({0: history})

    cache.pop(0, count)
    history = history[: len(history) - count]
    for size in (1, 30):
        new = random_tokens(size, seed=6)
        history += new
        assert same_bits(cache.step({0: new})[0], attend_alone(history, dtype)[-size:])


@caches
@pytest.mark.parametrize("seed", range(8))
def test_random_cache_operations_do_not_change_a_bit(seed: int, dtype: str) -> None:
    generator = np.random.default_rng(seed)
    window = None if seed < 4 else (int(generator.integers(1, 50)), int(generator.integers(0, 20)))
    cache = Cache(dtype, window=window)
    histories: dict[int, Tokens] = {}
    next_id = 0
    for _ in range(40):
        action = generator.choice(["add", "fork", "pop", "remove", "step", "decode"])
        parent = int(generator.choice(list(histories))) if histories else -1
        if parent == -1 or (action == "add" and len(histories) < 8):
            cache.add(next_id)
            histories[next_id] = []
            next_id += 1
        elif action == "fork" and len(histories) < 8 and histories[parent]:
            position = int(generator.integers(1, len(histories[parent]) + 1))
            cache.fork(parent, next_id, position)
            histories[next_id] = histories[parent][:position]
            next_id += 1
        elif action == "pop" and len(histories[parent]) > 1:
            count = int(generator.integers(1, len(histories[parent])))
            cache.pop(parent, count)
            del histories[parent][-count:]
        elif action == "remove":
            cache.remove(parent)
            del histories[parent]
        else:
            chosen = generator.permutation(list(histories))[: generator.integers(1, 9)]
            new = {
                int(i): random_tokens(
                    1 if action == "decode" else int(generator.integers(1, 40)),
                    seed=int(generator.integers(1 << 30)),
                )
                for i in chosen
            }
            for i, output in cache.step(new).items():
                histories[i] += new[i]
                assert same_bits(output, attend_alone(histories[i], dtype, window)[-len(new[i]) :])


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
        kernel("kv_layer_attention")(cache._kv, 0, SCALE, 0, 0, *settings, rows, output)


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


@pytest.mark.parametrize("value", [0.0, np.nan, np.inf])
def test_an_8_bit_cache_keeps_zeros_and_propagates_non_finite_values(value: float) -> None:
    cache = Cache("int8")
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

    with pytest.raises(ValueError, match="must be called through kv_int8_attention"):
        native("vm.builtin.attention_kv_cache_attention_with_fused_qkv")(
            cache._kv, 0, SCALE, rows, output
        )


def test_heads_too_small_for_an_8_bit_cache_are_rejected() -> None:
    rows = tvm_ffi.from_dlpack(np.zeros((1, HEADS, 2), np.float16))

    with pytest.raises(ValueError, match="is too small for an int8 KV cache, got 2"):
        kernel("kv_int8_attention")(Cache("int8")._kv, 0, SCALE, 0, 0, *PLAIN, rows, rows)


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
