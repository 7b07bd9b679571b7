"""The tensors by which a graph's own kernels find keys, values and recurrent states."""

from __future__ import annotations

__all__ = ("CacheArgument", "Tables")

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, final

from tvm.relax.frontend import nn

from aiomlc.compiler.backends.tvm.page_formats import PageFormat
from aiomlc.config import PAGE_SIZE
from aiomlc.models.config.decoder import DecoderConfig
from aiomlc.models.config.layers import AttentionConfig, RecurrentConfig, ShortConvConfig


class Tables(NamedTuple):
    """The tensors of a pass."""

    positions: nn.Tensor  #: Of each row in its sequence, int32 `[n]`.
    slots: nn.Tensor  #: The slot for the keys and values of each row, int32 `[n]`.
    sequences: nn.Tensor  #: The sequence of each row, int32 `[n]`.
    table: nn.Tensor  #: The pages of each sequence, int32 `[sequences, width]`.
    #: RoPE positions in time, height and width, int32 `[3, n]`; None if they are `positions`.
    rope_positions: nn.Tensor | None
    #: The first and the last position of each row's piece, int32 `[2, n]`; None if rows of a piece
    #: do not see each other. Outside of pieces, both are the row's.
    piece_ends: nn.Tensor | None
    #: The index of each row's piece row or -1, int32 `[n]`, and the piece rows; empty if layers add
    #: nothing to rows.
    piece_rows: Sequence[nn.Tensor]
    runs: Sequence[nn.Tensor]  #: `indptr` and `runs` of recurrent layers; empty if there are none.
    pages: Sequence[nn.Tensor]  #: Of each layer with attention.
    states: Sequence[Sequence[nn.Tensor]]  #: Of each recurrent layer.


@final
@dataclass(frozen=True, slots=True)
class CacheArgument:
    """The cache argument of a decoder's graph, in the order of the native `PageTableState`."""

    config: DecoderConfig
    stored: PageFormat

    def specification(self, rows: str) -> list[nn.spec.Tensor]:
        """Return the shapes for a name of the number of rows."""
        config = self.config
        tables = [nn.spec.Tensor([rows], "int32") for _ in range(3)]
        tables.append(nn.spec.Tensor(["num_sequences", "width"], "int32"))
        if config.rope_axes:
            tables.append(nn.spec.Tensor([3, rows], "int32"))
        if config.needs_whole_pieces:
            tables.append(nn.spec.Tensor([2, rows], "int32"))
        if config.num_piece_layers:
            tables.append(nn.spec.Tensor([rows], "int32"))
            tables.append(nn.spec.Tensor(["num_added", config.embedded_row_size], "float32"))
        if config.recurrent:
            tables.append(nn.spec.Tensor(["num_ends"], "int32"))
            tables.append(nn.spec.Tensor(["num_runs", 4], "int32"))
        pages = [
            nn.spec.Tensor(self.page_shape("num_pages", plan), self.stored.dtype)
            for plan in config.attention
        ]
        states = [nn.spec.Tensor(shape, "float32") for shape in self.state_shapes("num_slots")]
        return [*tables, *pages, *states]

    def page_shape(self, count: Any, plan: AttentionConfig) -> list[Any]:  # noqa: ANN401
        """Return the shape of `count` pages of a layer."""
        return [count, 2, plan.num_kv_heads, PAGE_SIZE, self.stored.row_size(plan.head_dim)]

    def state_shapes(self, count: Any) -> Iterator[list[Any]]:  # noqa: ANN401 - tvm is untyped.
        """Yield the shapes of the states of all recurrent layers, for a number of slots."""
        for plan in self.config.recurrent:
            yield from _state_shapes(count, plan)

    def tables(self, tensors: Sequence[nn.Tensor]) -> Tables:
        """Return the parts of the argument."""
        remaining = iter(tensors)

        def take(count: int) -> list[nn.Tensor]:
            return [next(remaining) for _ in range(count)]

        config = self.config
        positions, slots, sequences, table = take(4)
        rope_positions = next(remaining) if config.rope_axes else None
        piece_ends = next(remaining) if config.needs_whole_pieces else None
        piece_rows = take(2 if config.num_piece_layers else 0)
        runs = take(2 if config.recurrent else 0)
        pages = take(len(config.attention))
        states = [take(len(_state_shapes(0, plan))) for plan in config.recurrent]
        return Tables(
            positions=positions,
            slots=slots,
            sequences=sequences,
            table=table,
            rope_positions=rope_positions,
            piece_ends=piece_ends,
            piece_rows=piece_rows,
            runs=runs,
            pages=pages,
            states=states,
        )


def _state_shapes(count: Any, plan: RecurrentConfig) -> list[list[Any]]:  # noqa: ANN401
    last_inputs = [count, max(1, plan.width - 1), plan.channels]
    if isinstance(plan, ShortConvConfig):
        return [last_inputs]

    return [last_inputs, [count, plan.num_value_heads, plan.key_dim, plan.value_dim]]
