"""The head of a sequence classifier."""

from __future__ import annotations

__all__ = ("ClassifierHead",)

from tvm.relax.frontend import nn

from aiomlc.models.config.encoder import ClassifierConfig, EncoderPooling
from aiomlc.models.graph.layers import Gelu, LayerNorm, Linear, SoftCap
from aiomlc.models.graph.module import Module
from aiomlc.models.graph.packed import MeanRows, PickRows, Relu


class ClassifierHead(Module):
    """The logits of each input, from its pooled hidden states."""

    def __init__(self, config: ClassifierConfig, hidden: int, eps: float) -> None:
        super().__init__()
        self.pool: MeanRows | PickRows = _build_pooling(config.pooling)
        self.dense: Linear | None = None
        self.norm: LayerNorm | None = None
        if config.dense:
            self.dense = _build_linear(hidden, hidden, bias=config.dense_bias)
        self.activation: Gelu | Relu | SoftCap = _build_activation(config)
        if config.norm:
            self.norm = LayerNorm(hidden, eps, bias=False)
        self.output: Linear = _build_linear(hidden, config.num_labels, bias=config.output_bias)

    def forward(self, x: nn.Tensor, lengths: nn.Tensor) -> nn.Tensor:
        """Return `[b, labels]` for hidden states `[n, hidden]` of inputs of `lengths` `[b]`."""
        x = self.pool(x, lengths)
        if self.dense is not None:
            x = self.activation(self.dense(x))
        if self.norm is not None:
            x = self.norm(x)
        return self.output(x)


def _build_linear(inputs: int, outputs: int, *, bias: bool) -> Linear:
    return Linear(inputs, outputs, bias=bias, out_dtype="float32", keep_float32=True)


def _build_activation(config: ClassifierConfig) -> Gelu | Relu | SoftCap:
    match config.activation:
        case "gelu":
            return Gelu()
        case "relu":
            return Relu()
        case "tanh":
            return SoftCap(1.0)  # Softcapping with a cap of 1 is the hyperbolic tangent.


def _build_pooling(pooling: EncoderPooling) -> MeanRows | PickRows:
    match pooling:
        case "mean":
            return MeanRows()
        case end:
            return PickRows(end)
