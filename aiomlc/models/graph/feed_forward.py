"""The feed-forward layers of a decoder: gated, ungated, or a mixture of experts."""

from __future__ import annotations

__all__ = ("FeedForward", "build_feed_forward")

from tvm.relax.frontend import nn

from aiomlc.models.config.decoder import DecoderConfig
from aiomlc.models.graph.layers import Gelu, GeluTanhMul, Linear, Norm, SiluMul, SquaredReLU
from aiomlc.models.graph.module import Module
from aiomlc.models.graph.moe import SparseMlp


class GatedMlp(Module):
    """`down(activation(gate(x)) * up(x))`, with gate and up fused in one matrix."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        hidden, inner, bias = config.hidden_size, config.intermediate_size, config.traits.mlp_bias
        self.gate_up_proj: Linear = Linear(hidden, 2 * inner, bias=bias, out_dtype="float32")
        self.activation: SiluMul | GeluTanhMul = (
            SiluMul() if config.traits.activation == "silu" else GeluTanhMul()
        )
        self.down_proj: Linear = Linear(inner, hidden, bias=bias, out_dtype="float32")

    def forward(self, x: nn.Tensor, residual: nn.Tensor, norm: Norm) -> tuple[nn.Tensor, nn.Tensor]:
        """Return the layer's output for `norm(x + residual)`, and that sum."""
        return self.activation.fused_mlp(x, residual, norm, self.gate_up_proj, self.down_proj)

    def without_norm(self, x: nn.Tensor) -> nn.Tensor:
        """Return the layer's output for `x`."""
        return self.down_proj(self.activation(self.gate_up_proj(x)))


class PlainMlp(Module):
    """`down(activation(up(x)))`."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        hidden, inner, bias = config.hidden_size, config.intermediate_size, config.traits.mlp_bias
        self.up_proj: Linear = Linear(hidden, inner, bias=bias, out_dtype="float32")
        self.activation: Gelu | SquaredReLU = _build_activation(config)
        self.down_proj: Linear = Linear(inner, hidden, bias=bias, out_dtype="float32")

    def forward(self, x: nn.Tensor, residual: nn.Tensor, norm: Norm) -> tuple[nn.Tensor, nn.Tensor]:
        """Return the layer's output for `norm(x + residual)`, and that sum."""
        x, total = norm.add_linear(x, residual, self.up_proj)
        return self.down_proj(self.activation(x)), total

    def without_norm(self, x: nn.Tensor) -> nn.Tensor:
        """Return the layer's output for `x`."""
        return self.down_proj(self.activation(self.up_proj(x)))


def _build_activation(config: DecoderConfig) -> Gelu | SquaredReLU:
    activation = config.traits.activation
    if activation == "squared_relu":
        return SquaredReLU()

    return Gelu("gelu" if activation == "gelu" else "gelu_tanh")


FeedForward = GatedMlp | PlainMlp | SparseMlp


def build_feed_forward(config: DecoderConfig, layer: int) -> FeedForward:
    """Return the feed-forward layer of decoder layer `layer`."""
    experts = config.experts
    if experts is not None and experts.is_sparse(layer):
        return SparseMlp(experts, config.hidden_size)

    return GatedMlp(config) if config.traits.gated else PlainMlp(config)
