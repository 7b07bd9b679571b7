"""The layers of several residual streams, each of which calls a native kernel."""

from __future__ import annotations

__all__ = ("STREAM_LAYERS",)

from collections.abc import Callable, Mapping
from typing import Any

from tvm.relax.frontend import nn

from aiomlc.compiler.backends.cpu.layers import call_kernel
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


class CpuPredictStreams(Module):
    """The prediction of streams."""

    def __init__(self, layer: PredictStreams) -> None:
        super().__init__()
        self.count: int = layer.count

    def forward(self, streams: nn.Tensor, coefficients: nn.Tensor) -> nn.Tensor:
        inputs = [streams, coefficients, self.count]
        return call_kernel("predict_streams", inputs, streams.shape, "float32")


class CpuCorrectStreams(Module):
    """The correction of streams."""

    def __init__(self, layer: CorrectStreams) -> None:
        super().__init__()
        self.active: int = layer.active

    def forward(
        self, streams: nn.Tensor, activated: nn.Tensor, coefficients: nn.Tensor
    ) -> nn.Tensor:
        inputs = [streams, activated, coefficients, self.active]
        return call_kernel("correct_streams", inputs, streams.shape, "float32")


class CpuCutGates(Module):
    """Sparse gates."""

    def __init__(self, layer: CutGates) -> None:
        super().__init__()
        self.deviations: float = layer.deviations

    def forward(self, gate_up: nn.Tensor) -> nn.Tensor:
        return call_kernel("cut_gates", [gate_up, self.deviations], gate_up.shape, "float32")


class _TwoTensors(Module):
    """A kernel of two tensors, whose output has the shape of the first."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def forward(self, x: nn.Tensor, other: nn.Tensor) -> nn.Tensor:
        return call_kernel(self.name, [x, other], x.shape, "float32")


#: Replacements of the layers of the graph.
STREAM_LAYERS: Mapping[type, Callable[[Any], nn.Module]] = {
    AddPieceRows: CpuAddPieceRows,
    PredictStreams: CpuPredictStreams,
    CorrectStreams: CpuCorrectStreams,
    CutGates: CpuCutGates,
    AddToLaterStreams: lambda _: _TwoTensors("add_to_later_streams"),
    MatchMagnitude: lambda _: _TwoTensors("match_magnitude"),
    MultiplyColumns: lambda _: _TwoTensors("multiply_columns"),
}
