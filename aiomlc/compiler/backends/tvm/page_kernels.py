"""Kernels that find keys and values through page tables.

The pages of a layer are `[pages, 2, kv_heads, PAGE_SIZE, row]`, keys first, and a row of them is a
`PageFormat`. A row of other tensors is a token.
"""

# No `from __future__ import annotations`: TVMScript reads the annotations.

__all__ = ("append_kernel", "attention_kernel", "copy_kernel")

from typing import Any, Final, final

from tvm import tirx
from tvm.script import tirx as T  # noqa: N812 - TVMScript's name for it.

from aiomlc.compiler.backends.tvm.grid import Grid
from aiomlc.compiler.backends.tvm.page_formats import PageFormat
from aiomlc.config import PAGE_SIZE
from aiomlc.models.config.layers import AttentionConfig

_TILE: Final = 32  # Positions whose scores a work group has at a time.
_LOWEST: Final = -1e30  # Of a position that is not seen.
_OPAQUE: Final = 8  # TVM's OpPatternKind: is not fused with others.


@final
class _Rows:
    """The keys and values of a layer as expressions of a kernel."""

    def __init__(self, plan: AttentionConfig, stored: PageFormat) -> None:
        self._size = plan.head_dim
        self._stored = stored

    def element(
        self,
        layer: tuple[Any, Any, Any],
        key: Any,  # noqa: ANN401 - tvm is untyped.
        index: tuple[int, Any, Any],
    ) -> Any:  # noqa: ANN401
        """Return an element of a key or a value as float32.

        Args:
            layer: The pages of a layer, the page table, and the sequence.
            key: The position.
            index: 0 for keys or 1 for values, the head, and the dimension.
        """
        pages, table, sequence = layer
        part, head, dimension = index
        page = table[sequence, key // PAGE_SIZE]

        def stored(i: Any) -> Any:  # noqa: ANN401 - tvm is untyped.
            return pages[page, part, head, key % PAGE_SIZE, i]

        return self._stored.load(stored, dimension, self._size)


@final
class _Scoring:
    """The expressions of a kernel that a layer's plan decides."""

    def __init__(self, plan: AttentionConfig) -> None:
        self._plan = plan

    def is_seen(self, key: Any, position: Any, piece: Any) -> Any:  # noqa: ANN401
        """Return whether a row at `position` sees position `key`.

        Args:
            key: The position of a key.
            position: The position of the row.
            piece: The first and the last position of the row's piece.
        """
        plan = self._plan
        seen = key <= position
        if plan.window:
            in_window = tirx.any(position - key < plan.window, key < plan.sinks)
            seen = tirx.all(seen, in_window)
        if plan.sees_whole_pieces:
            seen = tirx.any(seen, tirx.all(key >= piece[0], key <= piece[1]))
        return seen

    def piece(self, ends: Any, row: Any, position: Any) -> tuple[Any, Any]:  # noqa: ANN401
        """Return the first and the last position of a row's piece."""
        if self._plan.sees_whole_pieces:
            return ends[0, row], ends[1, row]

        return position, position

    def first_tile(self, position: Any, piece: Any) -> Any:  # noqa: ANN401
        """Return the first tile of which a row at `position` sees something."""
        plan = self._plan
        if not plan.window or plan.sinks:
            return tirx.const(0, "int32")

        first = tirx.max(position - (plan.window - 1), 0)
        return tirx.min(first, piece[0]) // _TILE

    def capped(self, product: Any) -> Any:  # noqa: ANN401 - tvm is untyped.
        """Return the score of a product of query and key."""
        score = product * tirx.const(self._plan.scale, "float32")
        if not self._plan.soft_cap:
            return score

        cap = tirx.const(self._plan.soft_cap, "float32")
        return cap * tirx.tanh(score / cap)

    def initial(self, sink: Any) -> tuple[Any, Any]:  # noqa: ANN401 - tvm is untyped.
        """Return the largest score before the first position, and the sum of weights."""
        if self._plan.sink_scores:
            return sink, tirx.const(1.0, "float32")

        return tirx.const(_LOWEST, "float32"), tirx.const(0.0, "float32")


def append_kernel(  # noqa: C901 - of its kernel.
    grid: Grid, plan: AttentionConfig, stored: PageFormat
) -> Any:  # noqa: ANN401 - tvm is untyped.
    """Return a kernel that writes the keys and values of fused qkv to their slots.

    Arguments: qkv `[n, heads, head_dim]`, slots int32 `[n]`, and pages, which are written.
    """
    heads, kv_heads, size = plan.num_heads, plan.num_kv_heads, plan.head_dim
    row_size = stored.row_size(size)
    fused, items, dtype = heads + 2 * kv_heads, grid.num_items, stored.cache.compute_dtype

    @T.prim_func(private=True, s_tir=True)  # type: ignore[untyped-decorator]
    def append(  # noqa: C901 - a kernel has no functions to call.
        qkv_: T.handle, slots_: T.handle, pages_: T.handle
    ) -> None:
        T.func_attr({"tirx.is_scheduled": True, "tirx.noalias": True, "op_pattern": _OPAQUE})
        n = T.int64()
        num_pages = T.int64()
        qkv = T.match_buffer(qkv_, (n, fused, size), dtype)
        slots = T.match_buffer(slots_, (n,), "int32")
        pages = T.match_buffer(pages_, (num_pages, 2, kv_heads, PAGE_SIZE, row_size), stored.dtype)
        for row in grid.groups(n):
            for head in grid.subgroups(2 * kv_heads):
                for item in grid.items():
                    with T.sblock("append"):
                        T.reads()
                        T.writes()
                        scale = T.sblock_alloc_buffer((1,), "float32", scope=grid.local)
                        scale[0] = T.float32(0)
                        if stored.has_scale:
                            for i in T.serial(size):
                                scale[0] = T.max(
                                    scale[0],
                                    T.abs(T.Cast("float32", qkv[row, heads + head, i])),
                                )
                            scale[0] = stored.scale(scale[0])
                            if item == 0:
                                for i in T.serial(4):
                                    pages[
                                        slots[row] // PAGE_SIZE,
                                        head // kv_heads,
                                        head % kv_heads,
                                        slots[row] % PAGE_SIZE,
                                        size + i,
                                    ] = stored.scale_byte(scale[0], i)
                        for i in T.serial(T.ceildiv(size, items)):
                            if i * items + item < size:
                                pages[
                                    slots[row] // PAGE_SIZE,
                                    head // kv_heads,
                                    head % kv_heads,
                                    slots[row] % PAGE_SIZE,
                                    i * items + item,
                                ] = stored.store(qkv[row, heads + head, i * items + item], scale[0])

    kernel: tirx.PrimFunc = append
    return kernel


def copy_kernel(grid: Grid, plan: AttentionConfig, stored: PageFormat) -> Any:  # noqa: ANN401 - tvm is untyped.
    """Return a kernel that copies a page.

    Arguments: the source and the target int32 `[2]`, and pages, which are written.
    """
    kv_heads, items = plan.num_kv_heads, grid.num_items
    row_size = stored.row_size(plan.head_dim)

    @T.prim_func(private=True, s_tir=True)  # type: ignore[untyped-decorator]
    def copy(ids_: T.handle, pages_: T.handle) -> None:
        T.func_attr({"tirx.is_scheduled": True, "tirx.noalias": True, "op_pattern": _OPAQUE})
        num_pages = T.int64()
        ids = T.match_buffer(ids_, (2,), "int32")
        pages = T.match_buffer(pages_, (num_pages, 2, kv_heads, PAGE_SIZE, row_size), stored.dtype)
        for head in grid.groups(2 * kv_heads):
            for slot in grid.subgroups(PAGE_SIZE):
                for item in grid.items():
                    with T.sblock("copy"):
                        T.reads()
                        T.writes()
                        for i in T.serial(T.ceildiv(row_size, items)):
                            if i * items + item < row_size:
                                pages[
                                    ids[1],
                                    head // kv_heads,
                                    head % kv_heads,
                                    slot,
                                    i * items + item,
                                ] = pages[
                                    ids[0],
                                    head // kv_heads,
                                    head % kv_heads,
                                    slot,
                                    i * items + item,
                                ]

    kernel: tirx.PrimFunc = copy
    return kernel


def attention_kernel(  # noqa: C901 - of its kernel.
    grid: Grid, plan: AttentionConfig, stored: PageFormat
) -> Any:  # noqa: ANN401 - tvm is untyped.
    """Return a kernel with a work group for each row and head, which computes an online softmax.

    Arguments: qkv `[n, heads, head_dim]`, pages, the page table int32 `[sequences, width]`, the
    sequence and the position of each row int32 `[n]`, the ends of each row's piece int32 `[2, n]`
    (or anything `[1, n]`, if rows do not see whole pieces), the sink scores float32 `[heads]`
    (zeros if the layer has none), and the output `[n, heads, head_dim]`.
    """
    heads, kv_heads, size = plan.num_heads, plan.num_kv_heads, plan.head_dim
    fused, shared, items = heads + 2 * kv_heads, heads // kv_heads, grid.num_items
    parts, dtype = -(-size // items), stored.cache.compute_dtype
    rows, row_size = _Rows(plan, stored), stored.row_size(size)

    scoring = _Scoring(plan)

    @T.prim_func(private=True, s_tir=True)  # type: ignore[untyped-decorator]
    def attend(  # noqa: C901, PLR0913 - a kernel has no functions to call.
        qkv_: T.handle,
        pages_: T.handle,
        table_: T.handle,
        sequences_: T.handle,
        positions_: T.handle,
        ends_: T.handle,
        sinks_: T.handle,
        output_: T.handle,
    ) -> None:
        T.func_attr({"tirx.is_scheduled": True, "tirx.noalias": True, "op_pattern": _OPAQUE})
        n = T.int64()
        num_pages = T.int64()
        num_sequences = T.int64()
        width = T.int64()
        num_ends = T.int64()
        qkv = T.match_buffer(qkv_, (n, fused, size), dtype)
        pages = T.match_buffer(pages_, (num_pages, 2, kv_heads, PAGE_SIZE, row_size), stored.dtype)
        table = T.match_buffer(table_, (num_sequences, width), "int32")
        sequences = T.match_buffer(sequences_, (n,), "int32")
        positions = T.match_buffer(positions_, (n,), "int32")
        ends = T.match_buffer(ends_, (num_ends, n), "int32")
        sinks = T.match_buffer(sinks_, (heads,), "float32")
        output = T.match_buffer(output_, (n, heads, size), dtype)
        for row in grid.groups(n):
            for head in grid.subgroups(heads):
                for item in grid.items():
                    with T.sblock("attend"):
                        T.reads()
                        T.writes()
                        query = T.sblock_alloc_buffer((size,), "float32", scope=grid.shared)
                        scores = T.sblock_alloc_buffer((_TILE,), "float32", scope=grid.shared)
                        weights = T.sblock_alloc_buffer((_TILE,), "float32", scope=grid.shared)
                        values = T.sblock_alloc_buffer((parts,), "float32", scope=grid.local)
                        span = T.sblock_alloc_buffer((2,), "int32", scope=grid.local)
                        largest = T.sblock_alloc_buffer((1,), "float32", scope=grid.local)
                        before = T.sblock_alloc_buffer((1,), "float32", scope=grid.local)
                        total = T.sblock_alloc_buffer((1,), "float32", scope=grid.local)
                        score = T.sblock_alloc_buffer((1,), "float32", scope=grid.local)
                        for i in T.serial(parts):
                            values[i] = T.float32(0)
                            if i * items + item < size:
                                query[i * items + item] = T.Cast(
                                    "float32", qkv[row, head, i * items + item]
                                )
                        largest[0] = scoring.initial(sinks[head])[0]
                        total[0] = scoring.initial(sinks[head])[1]
                        span[0] = scoring.first_tile(
                            positions[row], scoring.piece(ends, row, positions[row])
                        )
                        span[1] = scoring.piece(ends, row, positions[row])[1]
                        for tile in T.serial(span[1] // _TILE - span[0] + 1):
                            for i in T.serial(_TILE // items):
                                if scoring.is_seen(
                                    (span[0] + tile) * _TILE + i * items + item,
                                    positions[row],
                                    scoring.piece(ends, row, positions[row]),
                                ):
                                    score[0] = T.float32(0)
                                    for d in T.serial(size):
                                        score[0] = score[0] + query[d] * rows.element(
                                            (pages, table, sequences[row]),
                                            (span[0] + tile) * _TILE + i * items + item,
                                            (0, head // shared, d),
                                        )
                                    scores[i * items + item] = scoring.capped(score[0])
                                else:
                                    scores[i * items + item] = T.float32(_LOWEST)
                            before[0] = largest[0]
                            for j in T.serial(_TILE):
                                largest[0] = T.max(largest[0], scores[j])
                            for i in T.serial(_TILE // items):
                                weights[i * items + item] = T.exp(
                                    scores[i * items + item] - largest[0]
                                )
                            before[0] = T.exp(before[0] - largest[0])
                            total[0] = total[0] * before[0]
                            for i in T.serial(parts):
                                values[i] = values[i] * before[0]
                            for j in T.serial(_TILE):
                                # The slots after the last position may hold anything.
                                if (span[0] + tile) * _TILE + j <= span[1]:
                                    total[0] = total[0] + weights[j]
                                    for i in T.serial(parts):
                                        if i * items + item < size:
                                            values[i] = values[i] + weights[j] * rows.element(
                                                (pages, table, sequences[row]),
                                                (span[0] + tile) * _TILE + j,
                                                (1, head // shared, i * items + item),
                                            )
                        for i in T.serial(parts):
                            if i * items + item < size:
                                output[row, head, i * items + item] = T.Cast(
                                    dtype, values[i] / total[0]
                                )

    kernel: tirx.PrimFunc = attend
    return kernel
