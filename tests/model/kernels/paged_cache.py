"""TVM's paged KV cache with the CPU kernels, and a float64 oracle of its attention."""

from __future__ import annotations

__all__ = (
    "HEADS",
    "HEAD_DIM",
    "KV_HEADS",
    "PLAIN",
    "QUERY_HEADS",
    "SCALE",
    "VOCABULARY",
    "Array",
    "Cache",
    "Tokens",
    "attend_alone",
    "chunks_of",
    "four_bits",
    "kernel",
    "native",
    "oracle",
    "random_tokens",
    "rotated",
    "same_bits",
)

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tvm_ffi
from numpy.typing import NDArray

from aiomlc.runtime.native.library import load_native

load_native()

QUERY_HEADS = 4
KV_HEADS = 2
HEAD_DIM = 32
HEADS = QUERY_HEADS + 2 * KV_HEADS
LAYERS = 2
SCALE = HEAD_DIM**-0.5
# No softcapping, the RoPE table that all layers share, and no whole pieces.
PLAIN = (0.0, 0, 0, 0)
INVERSE_FREQUENCIES = (100.0 ** (-np.arange(HEAD_DIM // 2) / (HEAD_DIM // 2))).astype(np.float32)
#: The numbers of a row, and their dtype, in caches of integers with scales.
ROWS = {"int8": (HEAD_DIM + 4, "int8"), "int4": (HEAD_DIM // 2 + 4, "uint8")}
#: The matrix of ones and minus ones by which rows of an int4 cache are rotated.
HADAMARD = functools.reduce(np.kron, [np.array([[1.0, 1.0], [1.0, -1.0]])] * 5)
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

    The dtype "int8" is an 8-bit cache with float16 queries, "int8 float32" with float32 queries;
    "int4" likewise.
    """

    def __init__(
        self, dtype: str = "float16", pages: int = 256, window: tuple[int, int] | None = None
    ) -> None:
        self._window = window
        kind = dtype.split()[0]
        self._attention = f"kv_{kind}_attention" if kind in ROWS else None
        row, stored_dtype = ROWS.get(kind, (HEAD_DIM, dtype))
        unsupported = kernel("attention_unsupported")
        self._vocabulary = VOCABULARY.astype(compute_dtype(dtype))
        self._stored = (row, stored_dtype)
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
        if self._attention is not None:
            kernel(self._attention)(self._kv, layer, SCALE, *window, *PLAIN, rows, output)
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
    kind, _, compute = dtype.partition(" ")
    return (compute or "float16") if kind in ROWS else dtype


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
    match dtype.split()[0]:
        case "int8":
            step = np.abs(floats).max(-1, keepdims=True) / 127
            return np.asarray(np.rint(floats / step) * step)
        case "int4":
            levels, scale = four_bits(floats)
            return np.asarray((2 * levels - 15) * scale @ HADAMARD / HEAD_DIM)
        case _:
            return floats


def four_bits(floats: Array) -> tuple[Array, Array]:
    """Return the levels and the scales, in float64, of rows that are rotated."""
    rotated_rows = floats.astype(np.float64) @ HADAMARD
    scale = np.abs(rotated_rows).max(-1, keepdims=True) / 15
    return np.rint((rotated_rows / scale + 15) / 2), scale


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
