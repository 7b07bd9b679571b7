"""A KV cache of plain tensors, which the graph's own kernels read and write.

Each layer has pages of its own heads, so layers may differ in heads, windows and rotation.
"""

from __future__ import annotations

__all__ = ("PageAttention", "PageTables", "lower_to_page_tables", "page_table_cache")

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import tvm
from tvm import relax, te, tirx
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn import op

from aiomlc.compiler.backends.tvm.grid import Grid
from aiomlc.compiler.backends.tvm.page_kernels import append_kernel, attention_kernel, copy_kernel
from aiomlc.compiler.cache_graph import CacheGraph
from aiomlc.compiler.kv_cache import KVCache
from aiomlc.config import PAGE_SIZE
from aiomlc.models.config.decoder import DecoderConfig
from aiomlc.models.config.layers import AttentionConfig
from aiomlc.models.config.rope import RopeConfig
from aiomlc.models.graph.decoder import Decoder
from aiomlc.models.graph.layers import CacheAttention
from aiomlc.models.graph.module import Module, Mutator


class PageTables(NamedTuple):
    """The tensors of a pass, in the order of the native `PageTableState`."""

    positions: nn.Tensor  #: Of each row in its sequence, int32 `[n]`.
    slots: nn.Tensor  #: Where the keys and values of each row are written, int32 `[n]`.
    sequences: nn.Tensor  #: The sequence of each row, int32 `[n]`.
    table: nn.Tensor  #: The pages of each sequence, int32 `[sequences, width]`.
    pages: Sequence[nn.Tensor]  #: Of each layer in the cache.

    @classmethod
    def of(cls, tensors: Sequence[nn.Tensor]) -> Self:
        """Return the parts of the graph's cache argument."""
        return cls(*tensors[:4], pages=tensors[4:])


class PageAttention(Module):
    """Attention over pages: rotates and appends the new rows, and attends to all."""

    def __init__(self, layer: CacheAttention, grid: Grid) -> None:
        super().__init__()
        self.layer: int = layer.layer
        self.plan: AttentionConfig = layer.plan
        self.dtype: str = layer.dtype
        self.grid: Grid = grid

    def forward(
        self, qkv: nn.Tensor, kv: Sequence[nn.Tensor], sink_scores: nn.Tensor | None = None
    ) -> nn.Tensor:
        plan, tables = self.plan, PageTables.of(kv)
        if plan.rope is not None:
            qkv = _rotated(qkv, tables.positions, plan, plan.rope)
        pages = tables.pages[self.layer]
        pages = op.tensor_ir_inplace_op(
            append_kernel(self.grid, plan, self.dtype),
            "append_rows",
            [qkv, tables.slots, pages],
            inplace_indices=[2],
            out=nn.Tensor.placeholder(pages.shape, pages.dtype),
        )
        if sink_scores is None:
            zeros = np.zeros((plan.num_heads,), np.float32)
            sink_scores = nn.Tensor(_expr=relax.const(zeros))
        return op.tensor_ir_op(
            attention_kernel(self.grid, plan, self.dtype),
            "page_attention",
            [qkv, pages, tables.table, tables.sequences, tables.positions, sink_scores],
            out=nn.Tensor.placeholder((qkv.shape[0], plan.num_heads, plan.head_dim), self.dtype),
        )


class _Lowering(Mutator):
    def __init__(self, grid: Grid) -> None:
        super().__init__()
        self._grid = grid

    def visit_module(self, name: str, node: nn.Module) -> nn.Module:
        if isinstance(node, CacheAttention):
            return PageAttention(node, self._grid)

        return super().visit_module(name, node)


def lower_to_page_tables(decoder: Decoder, grid: Grid) -> Decoder:
    """Return the decoder, whose attention finds keys and values through page tables."""
    lowered: Decoder = _Lowering(grid).visit("", decoder)
    return lowered


def _rotated(
    qkv: nn.Tensor, positions: nn.Tensor, plan: AttentionConfig, rope: RopeConfig
) -> nn.Tensor:
    """Return fused qkv `[n, heads, head_dim]` with rotated queries and keys."""
    inverse = rope.inverse_frequencies(plan.head_dim)
    half, amplitude = len(inverse), rope.attention_factor
    num_rotated = plan.num_heads + plan.num_kv_heads

    def compute(qkv: te.Tensor, positions: te.Tensor, frequencies: te.Tensor) -> te.Tensor:
        def element(row: Any, head: Any, i: Any) -> Any:  # noqa: ANN401 - tvm is untyped.
            def rotate() -> Any:  # noqa: ANN401 - tvm is untyped.
                angle = positions[row].astype("float32") * frequencies[i % half]
                own = qkv[row, head, i].astype("float32")
                other = qkv[row, head, tirx.if_then_else(i < half, i + half, i - half)]
                signed = tirx.if_then_else(i < half, -1.0, 1.0) * other.astype("float32")
                rotated = own * te.cos(angle) + signed * te.sin(angle)
                return (rotated * tirx.const(amplitude, "float32")).astype(qkv.dtype)

            is_rotated = tirx.all(head < num_rotated, i < 2 * half)
            return tirx.if_then_else(is_rotated, rotate(), qkv[row, head, i])

        return te.compute(qkv.shape, element, name="rotate")

    frequencies = nn.Tensor(_expr=relax.const(np.array(inverse, np.float32)))
    return op.tensor_expr_op(compute, "rotate", [qkv, positions, frequencies])


def page_table_cache(config: DecoderConfig, cache: KVCache, grid: Grid) -> CacheGraph:
    """Return the cache's argument, and the functions that create its tensors and copy a page."""

    def argument(rows: str) -> list[nn.spec.Tensor]:
        tables = [nn.spec.Tensor([rows], "int32") for _ in range(3)]
        table = nn.spec.Tensor(["num_sequences", "width"], "int32")
        pages = [
            nn.spec.Tensor(_page_shape("num_pages", plan), cache.dtype) for plan in config.attention
        ]
        return [*tables, table, *pages]

    def extend(module: tvm.IRModule) -> tvm.IRModule:
        builder = relax.BlockBuilder(module)
        shapes = [lambda count, plan=plan: _page_shape(count, plan) for plan in config.attention]
        _add_creation(builder, "create_kv_pages", shapes, cache.dtype)
        _add_copy(builder, config, cache, grid)
        return builder.finalize()

    return CacheGraph(None, argument, extend)


def _page_shape(count: Any, plan: AttentionConfig) -> list[Any]:  # noqa: ANN401 - tvm is untyped.
    return [count, 2, plan.num_kv_heads, PAGE_SIZE, plan.head_dim]


def _add_creation(
    builder: relax.BlockBuilder,
    name: str,
    shapes: Sequence[Callable[[Any], list[Any]]],
    dtype: str,
) -> None:
    """Add a function from a count to tensors of these shapes."""
    count = tirx.Var("count", "int64")
    argument = relax.Var("size", relax.ShapeType([count]))
    with builder.function(name, [argument]):
        zero = relax.const(0, dtype)
        tensors = [
            builder.emit(relax.op.full(relax.ShapeExpr(shape(count)), zero, dtype))
            for shape in shapes
        ]
        builder.emit_func_output(relax.Tuple(tensors))


def _add_copy(
    builder: relax.BlockBuilder, config: DecoderConfig, cache: KVCache, grid: Grid
) -> None:
    """Add a function from the pages of all layers and two ids, which copies a page."""
    count = tirx.Var("num_pages", "int64")
    kinds = [relax.TensorType(_page_shape(count, plan), cache.dtype) for plan in config.attention]
    pages = relax.Var("pages", relax.TupleType(kinds))
    ids = relax.Var("ids", relax.TensorType([2], "int32"))
    with builder.function("copy_kv_page", [pages, ids]):
        copied = []
        for i, (plan, kind) in enumerate(zip(config.attention, kinds, strict=True)):
            kernel = builder.add_func(copy_kernel(grid, plan, cache.dtype), "copy_page")
            layer = builder.emit(relax.TupleGetItem(pages, i))
            copied.append(builder.emit(relax.call_tir_inplace(kernel, [ids, layer], [1], [kind])))
        builder.emit_func_output(relax.Tuple(copied))
