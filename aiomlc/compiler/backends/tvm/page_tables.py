"""A KV cache of plain tensors, which the graph's own kernels read and write.

Each layer has pages of its own heads, so layers may differ in heads, windows and rotation.
"""

from __future__ import annotations

__all__ = ("PageAttention", "lower_to_page_tables", "page_table_cache")

from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax, te, tirx
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn import op

from aiomlc.compiler.backends.tvm.cache_argument import CacheArgument, Tables
from aiomlc.compiler.backends.tvm.grid import Grid
from aiomlc.compiler.backends.tvm.page_formats import PageFormat
from aiomlc.compiler.backends.tvm.page_kernels import append_kernel, attention_kernel, copy_kernel
from aiomlc.compiler.backends.tvm.recurrent_layers import StateConv, StateGatedDelta
from aiomlc.compiler.cache_graph import CacheGraph
from aiomlc.compiler.kv_cache import KVCache
from aiomlc.models.config.decoder import DecoderConfig
from aiomlc.models.config.layers import AttentionConfig
from aiomlc.models.config.rope import RopeConfig
from aiomlc.models.graph.cached_layers import CacheAttention, GatedDelta, ShortConv
from aiomlc.models.graph.decoder import Decoder
from aiomlc.models.graph.module import Module, Mutator
from aiomlc.models.graph.streams import AddPieceRows


class PageAttention(Module):
    """Attention over pages: rotates and appends the new rows, and attends to all."""

    def __init__(self, layer: CacheAttention, argument: CacheArgument, grid: Grid) -> None:
        super().__init__()
        self.argument = argument
        self.layer: int = layer.layer
        self.plan: AttentionConfig = layer.plan
        self.dtype: str = layer.dtype
        self.grid: Grid = grid

    def forward(
        self, qkv: nn.Tensor, kv: Sequence[nn.Tensor], sink_scores: nn.Tensor | None = None
    ) -> nn.Tensor:
        plan, tables = self.plan, self.argument.tables(kv)
        if plan.rope is not None:
            qkv = _rotated(qkv, tables, plan, plan.rope)
        pages = tables.pages[self.layer]
        pages = op.tensor_ir_inplace_op(
            append_kernel(self.grid, plan, self.argument.stored),
            "append_rows",
            [qkv, tables.slots, pages],
            inplace_indices=[2],
            out=nn.Tensor.placeholder(pages.shape, pages.dtype),
        )
        if sink_scores is None:
            zeros = np.zeros((plan.num_heads,), np.float32)
            sink_scores = nn.Tensor(_expr=relax.const(zeros))
        ends = tables.piece_ends if plan.sees_whole_pieces else None
        if ends is None:
            ends = tables.positions.reshape(1, qkv.shape[0])
        return op.tensor_ir_op(
            attention_kernel(self.grid, plan, self.argument.stored),
            "page_attention",
            [qkv, pages, tables.table, tables.sequences, tables.positions, ends, sink_scores],
            out=nn.Tensor.placeholder((qkv.shape[0], plan.num_heads, plan.head_dim), self.dtype),
        )


class AddRows(Module):
    """Hidden states, with one part of the rows of embedded pieces added where pieces are."""

    def __init__(self, layer: AddPieceRows, argument: CacheArgument) -> None:
        super().__init__()
        self.part: int = layer.part
        self.argument = argument

    def forward(self, x: nn.Tensor, kv: Sequence[nn.Tensor]) -> nn.Tensor:
        indices, rows = self.argument.tables(kv).piece_rows
        first = self.part * int(x.shape[1])

        def compute(x: te.Tensor, indices: te.Tensor, rows: te.Tensor) -> te.Tensor:
            def element(row: Any, i: Any) -> Any:  # noqa: ANN401 - tvm is untyped.
                index = indices[row]
                added = rows[tirx.max(index, 0), first + i]
                return x[row, i] + tirx.if_then_else(index >= 0, added, tirx.const(0.0, "float32"))

            return te.compute(x.shape, element, name="add_piece_rows")

        return op.tensor_expr_op(compute, "add_piece_rows", [x, indices, rows])


class _Lowering(Mutator):
    def __init__(self, argument: CacheArgument, grid: Grid) -> None:
        super().__init__()
        self._settings = (argument, grid)

    def visit_module(self, name: str, node: nn.Module) -> nn.Module:
        match node:
            case CacheAttention():
                return PageAttention(node, *self._settings)
            case ShortConv():
                return StateConv(node, *self._settings)
            case GatedDelta():
                return StateGatedDelta(node, *self._settings)
            case AddPieceRows():
                return AddRows(node, self._settings[0])
            case _:
                return super().visit_module(name, node)


def lower_to_page_tables(decoder: Decoder, cache: KVCache, grid: Grid) -> Decoder:
    """Return the decoder, whose layers find what they remember by tables."""
    argument = CacheArgument(decoder.config, PageFormat(cache))
    lowered: Decoder = _Lowering(argument, grid).visit("", decoder)
    return lowered


def _rotated(qkv: nn.Tensor, tables: Tables, plan: AttentionConfig, rope: RopeConfig) -> nn.Tensor:
    """Return fused qkv `[n, heads, head_dim]` with rotated queries and keys."""
    inverse = rope.inverse_frequencies(plan.head_dim)
    half, amplitude = len(inverse), rope.attention_factor
    num_rotated = plan.num_heads + plan.num_kv_heads
    axes = rope.axes(plan.head_dim) or (0,) * half
    positions = tables.rope_positions
    if positions is None:
        positions = tables.positions.reshape(1, tables.positions.shape[0])

    def compute(
        qkv: te.Tensor, positions: te.Tensor, frequencies: te.Tensor, axes: te.Tensor
    ) -> te.Tensor:
        def element(row: Any, head: Any, i: Any) -> Any:  # noqa: ANN401 - tvm is untyped.
            def rotate() -> Any:  # noqa: ANN401 - tvm is untyped.
                position = positions[axes[i % half], row].astype("float32")
                angle = position * frequencies[i % half]
                own = qkv[row, head, i].astype("float32")
                other = qkv[row, head, tirx.if_then_else(i < half, i + half, i - half)]
                signed = tirx.if_then_else(i < half, -1.0, 1.0) * other.astype("float32")
                rotated = own * te.cos(angle) + signed * te.sin(angle)
                return (rotated * tirx.const(amplitude, "float32")).astype(qkv.dtype)

            is_rotated = tirx.all(head < num_rotated, i < 2 * half)
            return tirx.if_then_else(is_rotated, rotate(), qkv[row, head, i])

        return te.compute(qkv.shape, element, name="rotate")

    frequencies = nn.Tensor(_expr=relax.const(np.array(inverse, np.float32)))
    axis = nn.Tensor(_expr=relax.const(np.array(axes, np.int32)))
    return op.tensor_expr_op(compute, "rotate", [qkv, positions, frequencies, axis])


def page_table_cache(config: DecoderConfig, cache: KVCache, grid: Grid) -> CacheGraph:
    """Return the cache's argument, and the functions that create its tensors and copy a page."""

    argument = CacheArgument(config, PageFormat(cache))

    def extend(module: tvm.IRModule) -> tvm.IRModule:
        builder = relax.BlockBuilder(module)
        count = tirx.Var("count", "int64")
        pages = [argument.page_shape(count, plan) for plan in config.attention]
        _add_creation(builder, "create_kv_pages", count, pages, argument.stored.dtype)
        if config.recurrent:
            count = tirx.Var("count", "int64")
            states = list(argument.state_shapes(count))
            _add_creation(builder, "create_recurrent_states", count, states, "float32")
        _add_copy(builder, argument, grid)
        return builder.finalize()

    return CacheGraph(None, argument.specification, extend)


def _add_creation(
    builder: relax.BlockBuilder,
    name: str,
    count: tirx.Var,
    shapes: Sequence[Sequence[Any]],
    dtype: str,
) -> None:
    """Add a function from a count to tensors of shapes with that count."""
    argument = relax.Var("size", relax.ShapeType([count]))
    with builder.function(name, [argument]):
        zero = relax.const(0, dtype)
        tensors = [
            builder.emit(relax.op.full(relax.ShapeExpr(shape), zero, dtype)) for shape in shapes
        ]
        builder.emit_func_output(relax.Tuple(tensors))


def _add_copy(builder: relax.BlockBuilder, argument: CacheArgument, grid: Grid) -> None:
    """Add a function from the pages of all layers and two ids, which copies a page."""
    plans, stored = argument.config.attention, argument.stored
    count = tirx.Var("num_pages", "int64")
    kinds = [relax.TensorType(argument.page_shape(count, plan), stored.dtype) for plan in plans]
    pages = relax.Var("pages", relax.TupleType(kinds))
    ids = relax.Var("ids", relax.TensorType([2], "int32"))
    with builder.function("copy_kv_page", [pages, ids]):
        copied = []
        for i, (plan, kind) in enumerate(zip(plans, kinds, strict=True)):
            kernel = builder.add_func(copy_kernel(grid, plan, stored), "copy_page")
            layer = builder.emit(relax.TupleGetItem(pages, i))
            copied.append(builder.emit(relax.call_tir_inplace(kernel, [ids, layer], [1], [kind])))
        builder.emit_func_output(relax.Tuple(copied))
