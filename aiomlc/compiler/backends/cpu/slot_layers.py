"""The layers of models whose keys and values are in slots, as native kernels."""

from __future__ import annotations

__all__ = ("SLOT_LAYERS",)

from collections.abc import Callable, Mapping
from typing import Any

from tvm.relax.frontend import nn

from aiomlc.compiler.backends.cpu.kernel_call import KernelCall, call_kernel
from aiomlc.models.graph.module import Module
from aiomlc.models.graph.slots import AttendSlots, SlotRows, SplitAttention, WriteSlots


class CpuWriteSlots(Module):
    """Keys and values, which become part of the memory."""

    def __init__(self, layer: WriteSlots) -> None:
        super().__init__()
        self.settings: tuple[int, int] = (layer.layer, layer.num_heads)

    def forward(self, k: nn.Tensor, v: nn.Tensor, rows: SlotRows, memory: nn.Tensor) -> nn.Tensor:
        inputs = [k, v, *rows, memory, *self.settings]
        return call_kernel("write_slots", inputs, rows.slots.shape, "int32")


class CpuAttendSlots(Module):
    """Attention to the memory."""

    def __init__(self, layer: AttendSlots) -> None:
        super().__init__()
        self.settings: tuple[int, int, float, int] = (
            layer.layer,
            layer.num_heads,
            layer.scale,
            int(layer.sees_all),
        )

    def forward(self, q: nn.Tensor, rows: SlotRows, memory: nn.Tensor) -> nn.Tensor:
        return call_kernel("attend_slots", [q, *rows, memory, *self.settings], q.shape, "float32")


#: Their plain layers, and what replaces them.
SLOT_LAYERS: Mapping[type, Callable[[Any], nn.Module]] = {
    SplitAttention: lambda layer: KernelCall(
        "packed_split_attention", layer.num_heads, layer.scale
    ),
    WriteSlots: CpuWriteSlots,
    AttendSlots: CpuAttendSlots,
}
