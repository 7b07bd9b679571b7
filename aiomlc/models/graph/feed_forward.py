"""The feed-forward layers of a decoder: gated, ungated, or a mixture of experts."""

from __future__ import annotations

__all__ = ("FeedForward", "build_feed_forward")

from tvm.relax.frontend import nn

from aiomlc.models.config.layers import ExpertsConfig, FeedForwardConfig, MlpConfig
from aiomlc.models.graph.layers import Gelu, GeluTanhMul, Linear, Norm, SiluMul, SquaredReLU
from aiomlc.models.graph.module import Module
from aiomlc.models.graph.moe import SparseMlp


class GatedMlp(Module):
    """`down(activation(gate(x)) * up(x))`, with gate and up fused in one matrix."""

    def __init__(self, mlp: MlpConfig, hidden: int) -> None:
        super().__init__()
        inner, bias = mlp.intermediate_size, mlp.bias
        self.gate_up_proj: Linear = Linear(hidden, 2 * inner, bias=bias, out_dtype="float32")
        self.activation: SiluMul | GeluTanhMul = (
            SiluMul() if mlp.activation == "silu" else GeluTanhMul()
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

    def __init__(self, mlp: MlpConfig, hidden: int) -> None:
        super().__init__()
        inner, bias = mlp.intermediate_size, mlp.bias
        self.up_proj: Linear = Linear(hidden, inner, bias=bias, out_dtype="float32")
        self.activation: Gelu | SquaredReLU = _build_activation(mlp)
        self.down_proj: Linear = Linear(inner, hidden, bias=bias, out_dtype="float32")

    def forward(self, x: nn.Tensor, residual: nn.Tensor, norm: Norm) -> tuple[nn.Tensor, nn.Tensor]:
        """Return the layer's output for `norm(x + residual)`, and that sum."""
        x, total = norm.add_linear(x, residual, self.up_proj)
        return self.down_proj(self.activation(x)), total

    def without_norm(self, x: nn.Tensor) -> nn.Tensor:
        """Return the layer's output for `x`."""
        return self.down_proj(self.activation(self.up_proj(x)))


def _build_activation(mlp: MlpConfig) -> Gelu | SquaredReLU:
    if mlp.activation == "squared_relu":
        return SquaredReLU()

    return Gelu("gelu" if mlp.activation == "gelu" else "gelu_tanh")


FeedForward = GatedMlp | PlainMlp | SparseMlp


def build_feed_forward(config: FeedForwardConfig, hidden: int) -> FeedForward:
    """Return a feed-forward layer for hidden states of `hidden` numbers."""
    if isinstance(config, ExpertsConfig):
        return SparseMlp(config, hidden)

    return GatedMlp(config, hidden) if config.gated else PlainMlp(config, hidden)
