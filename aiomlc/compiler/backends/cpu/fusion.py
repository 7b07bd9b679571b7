"""The operators that one CPU kernel computes together."""

from __future__ import annotations

__all__ = ("fuses_feed_forward", "fuses_norm")

from aiomlc.models.parameters.matrix_format import MatrixFormat
from aiomlc.models.parameters.packed_layout import TILE_ROWS, Layout


def fuses_norm(layout: Layout) -> bool:
    """Return whether one kernel computes a norm and the product with a matrix."""
    families = {MatrixFormat.parse(name).family for name, _ in layout}
    # The kernel quantizes or rounds the activations once, for all segments.
    return len(families) == 1 and families <= {
        "q4",
        "grouped",
        "i8channel",
        "i4progressive",
        "bf16",
    }


def fuses_feed_forward(gate_up: Layout, down: Layout) -> bool:
    """Return whether one kernel computes a complete gated MLP, without float32 activations of the
    intermediate size in memory."""
    # Gate and up must each consist of whole tiles, because a task computes tiles of both.
    inner = sum(rows for _, rows in gate_up) // 2
    is_whole = inner % TILE_ROWS == 0 and all(rows % TILE_ROWS == 0 for _, rows in gate_up)
    return is_whole and fuses_norm(gate_up) and fuses_norm(down)
