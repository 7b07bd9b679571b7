"""The parallel residual streams of Gemma 3n: a layer computes one and predicts the others (AltUp).
And what embedded pieces add to a single stream.

The streams of a token are adjacent: `[n, streams * hidden]`.
"""

from __future__ import annotations

__all__ = (
    "AddPieceRows",
    "AddToLaterStreams",
    "AltUp",
    "CorrectStreams",
    "CutGates",
    "Laurel",
    "MatchMagnitude",
    "MultiplyColumns",
    "PredictStreams",
    "StreamProjections",
    "SumStreams",
)

from statistics import NormalDist

from tvm import relax
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn import op

from aiomlc.models.config.decoder import DecoderConfig
from aiomlc.models.config.layers import StreamsConfig
from aiomlc.models.graph.columns import ConcatColumns, SliceColumns
from aiomlc.models.graph.layers import (
    Add,
    Linear,
    RMSNorm,
    Scale,
    SoftCap,
)
from aiomlc.models.graph.module import Module

_SMALLEST_MEAN = 1e-5  # Of squares.


def _constant(value: float) -> nn.Tensor:
    return nn.Tensor(_expr=relax.const(value, "float32"))


def _mean(x: nn.Tensor) -> nn.Tensor:
    """Return the mean of each row, `[n, 1]`."""
    return op.multiply(op.sum(x, axis=-1, keepdims=True), _constant(1.0 / int(x.shape[-1])))


class AddPieceRows(Module):
    """Hidden states, with one part of the rows of embedded pieces added where pieces are."""

    def __init__(self, part: int) -> None:
        super().__init__()
        self.part = part

    def forward(self, x: nn.Tensor, kv: nn.Object) -> nn.Tensor:
        raise NotImplementedError("rows of pieces are not supported on this target")


class PredictStreams(Module):
    """Each stream, plus a mix of all with the coefficients `[n, streams * streams]`."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count

    def forward(self, streams: nn.Tensor, coefficients: nn.Tensor) -> nn.Tensor:
        n, size = streams.shape
        factors = coefficients.reshape(n, self.count, self.count)
        mixed = op.matmul(factors, streams.reshape(n, self.count, int(size) // self.count))
        return op.add(streams, mixed.reshape(n, size))


class CorrectStreams(Module):
    """Each stream, plus what the active one did not predict, times a coefficient + 1."""

    def __init__(self, active: int) -> None:
        super().__init__()
        self.active = active

    def forward(
        self, streams: nn.Tensor, activated: nn.Tensor, coefficients: nn.Tensor
    ) -> nn.Tensor:
        n, size = activated.shape
        predicted = SliceColumns()(streams, self.active * int(size), int(size))
        error = op.subtract(activated, predicted).reshape(n, 1, size)
        factors = op.add(coefficients, _constant(1.0)).reshape(n, coefficients.shape[1], 1)
        return op.add(streams, op.multiply(factors, error).reshape(*streams.shape))


class AddToLaterStreams(Module):
    """The sum of all streams but the first with the same `[n, hidden]`."""

    def forward(self, streams: nn.Tensor, update: nn.Tensor) -> nn.Tensor:
        size = int(update.shape[1])
        count = int(streams.shape[1]) // size
        first, *others = op.split(streams, count, axis=1)
        return op.concat([first, *(op.add(stream, update) for stream in others)], dim=1)


class MatchMagnitude(Module):
    """Rows, scaled to the root mean square of those of a target."""

    def forward(self, x: nn.Tensor, target: nn.Tensor) -> nn.Tensor:
        wanted = op.sqrt(_mean(op.square(target)))
        own = op.sqrt(op.maximum(_mean(op.square(x)), _constant(_SMALLEST_MEAN)))
        return op.divide(op.multiply(x, wanted), own)


class MultiplyColumns(Module):
    """The product of each row and a stored one."""

    def forward(self, x: nn.Tensor, weight: nn.Tensor) -> nn.Tensor:
        return op.multiply(x, weight)


class CutGates(Module):
    """The gates of `[n, 2 * size]`, lowered so that a fraction of them is cut at 0."""

    def __init__(self, fraction: float) -> None:
        super().__init__()
        self.deviations: float = NormalDist().inv_cdf(fraction)

    def forward(self, gate_up: nn.Tensor) -> nn.Tensor:
        gates, up = op.split(gate_up, 2, axis=-1)
        centered = op.subtract(gates, _mean(gates))
        deviation = op.sqrt(_mean(op.square(centered)))
        cutoff = op.multiply(deviation, _constant(self.deviations))
        return op.concat([op.relu(op.subtract(centered, cutoff)), up], dim=-1)


class AltUp(Module):
    """The prediction of a layer's output, and its correction."""

    def __init__(self, plan: StreamsConfig, hidden: int, eps: float) -> None:
        super().__init__()
        count = plan.count
        self.first_column: int = plan.active * hidden
        self.hidden: int = hidden
        self.scales_output: bool = plan.output_scale
        if plan.output_scale:
            self.correct_output_scale: nn.Parameter = nn.Parameter((hidden,), "float32")
        self.correction_coefs: Linear = _exact(count, count)
        self.prediction_coefs: Linear = _exact(count, count * count)
        self.modality_router: Linear = _exact(hidden, count)
        self.router_norm: RMSNorm = RMSNorm(hidden, eps)
        self.router_scale: Scale = Scale(1.0 / hidden)
        self.tanh: SoftCap = SoftCap(1.0)
        self.prediction: PredictStreams = PredictStreams(count)
        self.correction: CorrectStreams = CorrectStreams(plan.active)
        self.slice: SliceColumns = SliceColumns()
        self.multiply: MultiplyColumns = MultiplyColumns()

    def active(self, streams: nn.Tensor) -> nn.Tensor:
        """Return the stream that the layer computes, `[n, hidden]`."""
        return self.slice(streams, self.first_column, self.hidden)

    def predict(self, streams: nn.Tensor) -> nn.Tensor:
        """Return the predicted streams."""
        coefficients = self.prediction_coefs(self._modalities(self.active(streams)))
        return self.prediction(streams, coefficients)

    def correct(self, predicted: nn.Tensor, activated: nn.Tensor) -> nn.Tensor:
        """Return the streams, corrected by the output `[n, hidden]` of the layer."""
        coefficients = self.correction_coefs(self._modalities(activated))
        return self.correction(predicted, activated, coefficients)

    def scaled_output(self, streams: nn.Tensor) -> nn.Tensor:
        """Return the active stream, scaled if the model has a scale for it."""
        x = self.active(streams)
        return self.multiply(x, self.correct_output_scale) if self.scales_output else x

    def _modalities(self, x: nn.Tensor) -> nn.Tensor:
        return self.tanh(self.modality_router(self.router_scale(self.router_norm(x))))


class Laurel(Module):
    """A residual layer of two narrow matrices."""

    def __init__(self, rank: int, hidden: int, eps: float) -> None:
        super().__init__()
        self.linear_left: Linear = Linear(hidden, rank, bias=False, out_dtype="float32")
        self.linear_right: Linear = Linear(rank, hidden, bias=False, out_dtype="float32")
        self.post_laurel_norm: RMSNorm = RMSNorm(hidden, eps)
        self.sum: Add = Add()

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return self.sum(x, self.post_laurel_norm(self.linear_right(self.linear_left(x))))


class StreamProjections(Module):
    """The first streams: a hidden state, and its projections of the same magnitude."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.hidden: int = config.hidden_size
        self.matrices: nn.ModuleList = _projections(config)
        self.match: MatchMagnitude = MatchMagnitude()
        self.concat: ConcatColumns = ConcatColumns()

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        streams = x
        for matrix in self.matrices:
            streams = self.concat(streams, self.match(matrix(x), x), 0, self.hidden)
        return streams


class SumStreams(Module):
    """The mean of the first stream and of the projections of the others."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.hidden: int = config.hidden_size
        self.matrices: nn.ModuleList = _projections(config)
        self.match: MatchMagnitude = MatchMagnitude()
        self.slice: SliceColumns = SliceColumns()
        self.sum: Add = Add()
        self.scale: Scale = Scale(1.0 / config.num_streams)

    def forward(self, streams: nn.Tensor) -> tuple[nn.Tensor, nn.Tensor]:
        """Return two parts of the mean."""
        first = self.slice(streams, 0, self.hidden)
        others: nn.Tensor | None = None
        for index, matrix in enumerate(self.matrices, start=1):
            stream = self.slice(streams, index * self.hidden, self.hidden)
            matched = self.match(matrix(stream), first)
            others = matched if others is None else self.sum(others, matched)
        assert others is not None, "there are several streams"
        return self.scale(first), self.scale(others)


def _projections(config: DecoderConfig) -> nn.ModuleList:
    hidden = config.hidden_size
    return nn.ModuleList(
        [
            Linear(hidden, hidden, bias=False, out_dtype="float32")
            for _ in range(1, config.num_streams)
        ]
    )


def _exact(inputs: int, outputs: int) -> Linear:
    """Return a matrix of few numbers, which scale whole streams."""
    return Linear(inputs, outputs, bias=False, out_dtype="float32", keep_float32=True)
