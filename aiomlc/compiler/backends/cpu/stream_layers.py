"""The layers of several residual streams, each of which calls a native kernel."""

from __future__ import annotations

__all__ = ("STREAM_LAYERS",)

from collections.abc import Callable, Mapping
from typing import Any

from tvm.relax.frontend import nn

from aiomlc.compiler.backends.cpu.kernel_call import KernelCall, call_kernel
from aiomlc.models.graph.module import Module
from aiomlc.models.graph.streams import (
    AddPieceRows,
    AddToLaterStreams,
    CorrectStreams,
    CutGates,
    MatchMagnitude,
    MultiplyColumns,
    PredictStreams,
)


class CpuAddPieceRows(Module):
    """The addition of rows of embedded pieces."""

    def __init__(self, layer: AddPieceRows) -> None:
        super().__init__()
        self.part: int = layer.part

    def forward(self, x: nn.Tensor, _: nn.Object) -> nn.Tensor:
        return call_kernel("add_piece_rows", [x, self.part], x.shape, "float32")


#: Replacements of the layers of the graph.
STREAM_LAYERS: Mapping[type, Callable[[Any], nn.Module]] = {
    AddPieceRows: CpuAddPieceRows,
    AddToLaterStreams: lambda _: KernelCall("add_to_later_streams"),
    CorrectStreams: lambda layer: KernelCall("correct_streams", layer.active),
    CutGates: lambda layer: KernelCall("cut_gates", layer.deviations),
    MatchMagnitude: lambda _: KernelCall("match_magnitude"),
    MultiplyColumns: lambda _: KernelCall("multiply_columns"),
    PredictStreams: lambda layer: KernelCall("predict_streams", layer.count),
}
