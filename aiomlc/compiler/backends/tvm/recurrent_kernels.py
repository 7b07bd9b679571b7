"""Kernels of recurrent layers, whose states are in slots of tensors.

A run is consecutive rows of a sequence, with the slots of the state before and after them: int32
`[runs, 4]` of first row, number of rows, source and target. A source of -1 is a state of zeros. The
runs of sequence i are `indptr[i]` to `indptr[i + 1]`; each begins where the one before ends.

An item owns some channels of a sequence, or a part of them, so it reads only what it has written
itself.
"""

# No `from __future__ import annotations`: TVMScript reads the annotations.

__all__ = ("convolution_kernel", "delta_kernel")

import math
from typing import Any, Final

from tvm import tirx
from tvm.script import tirx as T  # noqa: N812 - TVMScript's name for it.

from aiomlc.compiler.backends.tvm.grid import Grid
from aiomlc.models.config.layers import GatedDeltaConfig

_OPAQUE: Final = 8  # TVM's OpPatternKind: is not fused with others.
_LANES: Final = 4  # The items of a column: with 128 numbers of it, each has 32.


def _at_least_0(index: Any) -> Any:  # noqa: ANN401 - tvm is untyped.
    return tirx.max(index, 0)


def convolution_kernel(  # noqa: C901 - of its kernel.
    grid: Grid, width: int, channels: int
) -> Any:  # noqa: ANN401 - tvm is untyped.
    """Return a kernel that convolves the last `width` rows of each channel.

    Arguments: inputs `[n, channels]`, weight `[width * channels]`, indptr, runs, the state
    `[slots, max(1, width - 1), channels]` of the last inputs, which is written, and the output
    `[n, channels]`.
    """
    items, kept = grid.num_items, width - 1

    @T.prim_func(private=True, s_tir=True)  # type: ignore[untyped-decorator]
    def convolve(  # noqa: C901 - a kernel has no functions to call.
        inputs_: T.handle,
        weight_: T.handle,
        indptr_: T.handle,
        runs_: T.handle,
        state_: T.handle,
        output_: T.handle,
    ) -> None:
        T.func_attr({"tirx.is_scheduled": True, "tirx.noalias": True, "op_pattern": _OPAQUE})
        n = T.int64()
        ends = T.int64()
        num_runs = T.int64()
        num_slots = T.int64()
        inputs = T.match_buffer(inputs_, (n, channels), "float32")
        weight = T.match_buffer(weight_, (width * channels,), "float32")
        indptr = T.match_buffer(indptr_, (ends,), "int32")
        runs = T.match_buffer(runs_, (num_runs, 4), "int32")
        state = T.match_buffer(state_, (num_slots, max(1, kept), channels), "float32")
        output = T.match_buffer(output_, (n, channels), "float32")
        for sequence in grid.groups(ends - 1):
            for part in grid.subgroups(-(-channels // items)):
                for item in grid.items():
                    with T.sblock("convolve"):
                        T.reads()
                        T.writes()
                        run = T.sblock_alloc_buffer((4,), "int32", scope=grid.local)
                        total = T.sblock_alloc_buffer((1,), "float32", scope=grid.local)
                        if part * items + item < channels:
                            for i in T.serial(indptr[sequence + 1] - indptr[sequence]):
                                for field in T.serial(4):
                                    run[field] = runs[indptr[sequence] + i, field]
                                for row in T.serial(run[1]):
                                    total[0] = T.float32(0)
                                    for tap in T.serial(width):
                                        if row + tap >= kept:
                                            total[0] = total[0] + (
                                                inputs[
                                                    run[0] + _at_least_0(row + tap - kept),
                                                    part * items + item,
                                                ]
                                                * weight[tap * channels + part * items + item]
                                            )
                                        elif run[2] >= 0:
                                            total[0] = total[0] + (
                                                state[
                                                    _at_least_0(run[2]),
                                                    row + tap,
                                                    part * items + item,
                                                ]
                                                * weight[tap * channels + part * items + item]
                                            )
                                    output[run[0] + row, part * items + item] = total[0]
                                for tap in T.serial(kept):  # The source may be the target.
                                    total[0] = T.float32(0)
                                    if run[1] + tap >= kept:
                                        total[0] = inputs[
                                            run[0] + _at_least_0(run[1] + tap - kept),
                                            part * items + item,
                                        ]
                                    elif run[2] >= 0:
                                        total[0] = state[
                                            _at_least_0(run[2]),
                                            run[1] + tap,
                                            part * items + item,
                                        ]
                                    state[run[3], tap, part * items + item] = total[0]

    kernel: tirx.PrimFunc = convolve
    return kernel


def delta_kernel(  # noqa: C901 - of its kernel.
    grid: Grid, plan: GatedDeltaConfig
) -> Any:  # noqa: ANN401 - tvm is untyped.
    """Return a kernel that updates the matrices of a gated delta net row by row.

    Arguments: queries and keys `[n, key heads, key_dim]`, both normalized, values `[n, value heads,
    value_dim]`, decays and betas `[n, value heads]`, indptr, runs, the state `[slots, value heads,
    key_dim, value_dim]`, which is written, and the output with the shape of the values.

    Several items share a column of a matrix, so that each keeps its part in registers. They add
    their sums once per row: the outer product of a row and a difference is added to the matrix when
    the next row reads it, and to the row's output as `(query * key) * difference`.
    """
    key_heads, value_heads = plan.num_key_heads, plan.num_value_heads
    key_dim, value_dim = plan.key_dim, plan.value_dim
    lanes = math.gcd(_LANES, key_dim) if grid.is_gpu else 1
    columns = math.gcd(grid.num_items // lanes, value_dim) if grid.is_gpu else 1
    depth, parts, ratio = key_dim // lanes, value_dim // columns, value_heads // key_heads
    is_tiled = plan.head_order == "tiled"

    def key_head(head: Any) -> Any:  # noqa: ANN401 - tvm is untyped.
        return head % key_heads if is_tiled else head // ratio

    def channel(item: Any, k: Any) -> Any:  # noqa: ANN401 - tvm is untyped.
        return item // columns * depth + k

    def column(part: Any, item: Any) -> Any:  # noqa: ANN401 - tvm is untyped.
        return part % parts * columns + item % columns

    @T.prim_func(private=True, s_tir=True)  # type: ignore[untyped-decorator]
    def update(  # noqa: C901, PLR0913 - a kernel has no functions to call.
        queries_: T.handle,
        keys_: T.handle,
        values_: T.handle,
        decays_: T.handle,
        betas_: T.handle,
        indptr_: T.handle,
        runs_: T.handle,
        state_: T.handle,
        output_: T.handle,
    ) -> None:
        T.func_attr({"tirx.is_scheduled": True, "tirx.noalias": True, "op_pattern": _OPAQUE})
        n = T.int64()
        ends = T.int64()
        num_runs = T.int64()
        num_slots = T.int64()
        queries = T.match_buffer(queries_, (n, key_heads, key_dim), "float32")
        keys = T.match_buffer(keys_, (n, key_heads, key_dim), "float32")
        values = T.match_buffer(values_, (n, value_heads, value_dim), "float32")
        decays = T.match_buffer(decays_, (n, value_heads), "float32")
        betas = T.match_buffer(betas_, (n, value_heads), "float32")
        indptr = T.match_buffer(indptr_, (ends,), "int32")
        runs = T.match_buffer(runs_, (num_runs, 4), "int32")
        state = T.match_buffer(state_, (num_slots, value_heads, key_dim, value_dim), "float32")
        output = T.match_buffer(output_, (n, value_heads, value_dim), "float32")
        for sequence in grid.groups(ends - 1):
            for part in grid.subgroups(value_heads * parts):
                for item in grid.items(lanes * columns):
                    with T.sblock("update"):
                        T.reads()
                        T.writes()
                        run = T.sblock_alloc_buffer((4,), "int32", scope=grid.local)
                        cells = T.sblock_alloc_buffer((depth,), "float32", scope=grid.local)
                        delta = T.sblock_alloc_buffer((1,), "float32", scope=grid.local)
                        sums = T.sblock_alloc_buffer((3,), "float32", scope=grid.local)
                        partial = T.sblock_alloc_buffer(
                            (3, lanes, columns), "float32", scope=grid.shared
                        )
                        for i in T.serial(indptr[sequence + 1] - indptr[sequence]):
                            for field in T.serial(4):
                                run[field] = runs[indptr[sequence] + i, field]
                            for k in T.serial(depth):
                                cells[k] = T.float32(0)
                                if run[2] >= 0:
                                    cells[k] = state[
                                        _at_least_0(run[2]),
                                        part // parts,
                                        channel(item, k),
                                        column(part, item),
                                    ]
                            delta[0] = T.float32(0)
                            for row in T.serial(run[1]):
                                for field in T.serial(3):
                                    sums[field] = T.float32(0)
                                for k in T.serial(depth):
                                    cells[k] = (
                                        cells[k]
                                        + delta[0]
                                        * keys[
                                            run[0] + _at_least_0(row - 1),
                                            key_head(part // parts),
                                            channel(item, k),
                                        ]
                                    ) * decays[run[0] + row, part // parts]
                                    sums[0] = (
                                        sums[0]
                                        + cells[k]
                                        * keys[
                                            run[0] + row,
                                            key_head(part // parts),
                                            channel(item, k),
                                        ]
                                    )
                                    sums[1] = (
                                        sums[1]
                                        + cells[k]
                                        * queries[
                                            run[0] + row,
                                            key_head(part // parts),
                                            channel(item, k),
                                        ]
                                    )
                                    sums[2] = (
                                        sums[2]
                                        + keys[
                                            run[0] + row,
                                            key_head(part // parts),
                                            channel(item, k),
                                        ]
                                        * queries[
                                            run[0] + row,
                                            key_head(part // parts),
                                            channel(item, k),
                                        ]
                                    )
                                for field in T.serial(3):
                                    partial[field, item // columns, item % columns] = sums[field]
                                for field in T.serial(3):
                                    sums[field] = T.float32(0)
                                    for lane in T.serial(lanes):
                                        sums[field] = (
                                            sums[field] + partial[field, lane, item % columns]
                                        )
                                delta[0] = betas[run[0] + row, part // parts] * (
                                    values[
                                        run[0] + row,
                                        part // parts,
                                        column(part, item),
                                    ]
                                    - sums[0]
                                )
                                if item < columns:
                                    output[
                                        run[0] + row,
                                        part // parts,
                                        column(part, item),
                                    ] = sums[1] + delta[0] * sums[2]
                            for k in T.serial(depth):
                                state[
                                    run[3],
                                    part // parts,
                                    channel(item, k),
                                    column(part, item),
                                ] = (
                                    cells[k]
                                    + delta[0]
                                    * keys[
                                        run[0] + _at_least_0(run[1] - 1),
                                        key_head(part // parts),
                                        channel(item, k),
                                    ]
                                )

    kernel: tirx.PrimFunc = update
    return kernel
