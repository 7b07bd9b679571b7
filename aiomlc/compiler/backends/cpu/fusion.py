"""The operators that one CPU kernel computes together."""

from __future__ import annotations

__all__ = ("fuses_feed_forward", "fuses_mlp", "fuses_norm")

from aiomlc.models.parameters.matrix_format import MatrixFormat
from aiomlc.models.parameters.packed_layout import TILE_ROWS, Layout


def fuses_norm(layout: Layout) -> bool:
    """Return whether one kernel computes a norm and the product with a matrix."""
    rounded = {"q4", "grouped", "i8channel", "i4progressive", "i8rotated", "bf16"}
    return _families(layout) <= rounded and _has_one_family(layout)


def fuses_mlp(up: Layout, down: Layout) -> bool:
    """Return whether one kernel computes a complete MLP without a gate."""
    is_whole = all(rows % TILE_ROWS == 0 for _, rows in up)
    return is_whole and _has_one_family(up) and _has_one_family(down)


def fuses_feed_forward(gate_up: Layout, down: Layout) -> bool:
    """Return whether one kernel computes a complete gated MLP, without float32 activations of the
    intermediate size in memory."""
    # Gate and up must each consist of whole tiles, because a task computes tiles of both.
    inner = sum(rows for _, rows in gate_up) // 2
    is_whole = inner % TILE_ROWS == 0 and all(rows % TILE_ROWS == 0 for _, rows in gate_up)
    return is_whole and fuses_norm(gate_up) and fuses_norm(down)


def _has_one_family(layout: Layout) -> bool:
    # A kernel quantizes or rounds the activations once, for all segments.
    return len(_families(layout)) == 1


def _families(layout: Layout) -> set[str]:
    return {MatrixFormat.parse(name).family for name, _ in layout}
