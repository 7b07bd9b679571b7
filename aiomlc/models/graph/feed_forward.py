"""What stands between the attentions of a decoder, with a gate or without."""

from __future__ import annotations

__all__ = ("FeedForward", "feed_forward_of")

from tvm.relax.frontend import nn

from aiomlc.models.config.decoder import DecoderConfig
from aiomlc.models.graph.layers import Gelu, GeluTanhMul, Linear, Norm, SiluMul, SquaredReLU
from aiomlc.models.graph.module import Module
from aiomlc.models.graph.moe import SparseMlp


class GatedMlp(Module):
    """Two matrices with a gate between."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        hidden, inner, bias = config.hidden_size, config.intermediate_size, config.mlp_bias
        self.gate_up_proj: Linear = Linear(hidden, 2 * inner, bias=bias, out_dtype="float32")
        self.activation: SiluMul | GeluTanhMul = (
            SiluMul() if config.activation == "silu" else GeluTanhMul()
        )
        self.down_proj: Linear = Linear(inner, hidden, bias=bias, out_dtype="float32")

    def forward(self, x: nn.Tensor, residual: nn.Tensor, norm: Norm) -> tuple[nn.Tensor, nn.Tensor]:
        """The layer of the normalised sum, and the sum."""
        return self.activation.between(x, residual, norm, self.gate_up_proj, self.down_proj)

    def unnormed(self, x: nn.Tensor) -> nn.Tensor:
        """The same without the sum and its norm."""
        return self.down_proj(self.activation(self.gate_up_proj(x)))


class PlainMlp(Module):
    """Two matrices with a function between."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        hidden, inner, bias = config.hidden_size, config.intermediate_size, config.mlp_bias
        self.up_proj: Linear = Linear(hidden, inner, bias=bias, out_dtype="float32")
        self.activation: Gelu | SquaredReLU = _function_of(config)
        self.down_proj: Linear = Linear(inner, hidden, bias=bias, out_dtype="float32")

    def forward(self, x: nn.Tensor, residual: nn.Tensor, norm: Norm) -> tuple[nn.Tensor, nn.Tensor]:
        """The layer of the normalised sum, and the sum."""
        x, total = norm.add_linear(x, residual, self.up_proj)
        return self.down_proj(self.activation(x)), total

    def unnormed(self, x: nn.Tensor) -> nn.Tensor:
        """The same without the sum and its norm."""
        return self.down_proj(self.activation(self.up_proj(x)))


def _function_of(config: DecoderConfig) -> Gelu | SquaredReLU:
    if config.activation == "relu_square":
        return SquaredReLU()

    return Gelu("gelu" if config.activation == "gelu" else "gelu_tanh")


FeedForward = GatedMlp | PlainMlp | SparseMlp


def feed_forward_of(config: DecoderConfig, layer: int) -> FeedForward:
    """The layer that follows attention."""
    experts = config.experts
    if experts is not None and experts.is_sparse(layer):
        return SparseMlp(experts, config.hidden_size)

    return GatedMlp(config) if config.gated else PlainMlp(config)
