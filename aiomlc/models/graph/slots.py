"""The layers of models whose keys and values are in slots: memory of a fixed number of positions
for each sequence, which the caller owns, without a page table."""

from __future__ import annotations

__all__ = ("AttendSlots", "SlotRows", "SplitAttention", "WriteSlots")

from typing import NamedTuple

from tvm.relax.frontend import nn

from aiomlc.models.graph.module import Module


class SlotRows(NamedTuple):
    """Rows of several sequences, which are concatenated, and the slots of the sequences."""

    lengths: nn.Tensor  #: Rows of each sequence, int32 `[b]`.
    ends: nn.Tensor  #: The position after each sequence's last row, int32 `[b]`.
    slots: nn.Tensor  #: int32 `[b]`.


class SplitAttention(Module):
    """Attention of the tokens of each input to one another; nothing is stored."""

    def __init__(self, num_heads: int, scale: float) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.scale = scale

    def forward(self, q: nn.Tensor, k: nn.Tensor, v: nn.Tensor, lengths: nn.Tensor) -> nn.Tensor:
        """Return `[n, size]` for queries, keys and values of this shape."""
        raise NotImplementedError("speech is not supported on this target")


class WriteSlots(Module):
    """Writes the keys and values of rows at their positions in a layer of the memory."""

    def __init__(self, layer: int, num_heads: int) -> None:
        super().__init__()
        self.layer = layer
        self.num_heads = num_heads

    def forward(self, k: nn.Tensor, v: nn.Tensor, rows: SlotRows, memory: nn.Tensor) -> nn.Tensor:
        """Return the slots, on which whatever reads the memory must depend."""
        raise NotImplementedError("speech is not supported on this target")


class AttendSlots(Module):
    """Attention of rows to the positions in their slots.

    Args:
        layer: The layer of the memory.
        num_heads: Of queries, keys and values.
        scale: Applied to q . k.
        sees_all: Whether a row sees all positions before its sequence's end, not only those up to
            its own.
    """

    def __init__(self, layer: int, num_heads: int, scale: float, *, sees_all: bool) -> None:
        super().__init__()
        self.layer = layer
        self.num_heads = num_heads
        self.scale = scale
        self.sees_all = sees_all

    def forward(self, q: nn.Tensor, rows: SlotRows, memory: nn.Tensor) -> nn.Tensor:
        """Return `[n, size]` for queries of this shape."""
        raise NotImplementedError("speech is not supported on this target")
