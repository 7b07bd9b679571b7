"""The feed-forward layers of a decoder: gated, ungated, or a mixture of experts."""

from __future__ import annotations

__all__ = ("FeedForward", "GatedMlp", "PlainMlp", "build_activation", "build_feed_forward")

from collections.abc import Mapping

from tvm.relax.frontend import nn

from aiomlc.models.config.activation import Activation
from aiomlc.models.config.layers import (
    DenseAndExpertsConfig,
    ExpertsConfig,
    FeedForwardConfig,
    MlpConfig,
)
from aiomlc.models.graph.layers import (
    Add,
    GatedMul,
    Gelu,
    GeluMul,
    GeluTanhMul,
    Linear,
    Norm,
    RMSNorm,
    Scale,
    SiluMul,
    SquaredReLU,
)
from aiomlc.models.graph.module import Module
from aiomlc.models.graph.moe import MoE, Routing, SparseMlp
from aiomlc.models.graph.streams import CutGates

_GATED: Mapping[Activation, type[GatedMul]] = {"silu": SiluMul, "gelu": GeluMul}


class GatedMlp(Module):
    """`down(activation(gate(x)) * up(x))`, with gate and up fused in one matrix."""

    def __init__(self, mlp: MlpConfig, hidden: int) -> None:
        super().__init__()
        inner, bias = mlp.intermediate_size, mlp.bias
        self.gate_up_proj: Linear = Linear(hidden, 2 * inner, bias=bias, out_dtype="float32")
        self.activation: GatedMul = _GATED.get(mlp.activation, GeluTanhMul)()
        self.down_proj: Linear = Linear(inner, hidden, bias=bias, out_dtype="float32")
        self.cut_gates: CutGates | None = CutGates(mlp.sparsity) if mlp.sparsity else None

    def forward(self, x: nn.Tensor, residual: nn.Tensor, norm: Norm) -> tuple[nn.Tensor, nn.Tensor]:
        """Return the layer's output for `norm(x + residual)`, and that sum."""
        assert self.cut_gates is None, "sparse layers are called without a norm"
        return self.activation.fused_mlp(x, residual, norm, self.gate_up_proj, self.down_proj)

    def without_norm(self, x: nn.Tensor) -> nn.Tensor:
        """Return the layer's output for `x`."""
        gate_up = self.gate_up_proj(x)
        if self.cut_gates is not None:
            gate_up = self.cut_gates(gate_up)
        return self.down_proj(self.activation(gate_up))


class PlainMlp(Module):
    """`down(activation(up(x)))`."""

    def __init__(self, mlp: MlpConfig, hidden: int) -> None:
        super().__init__()
        inner, bias = mlp.intermediate_size, mlp.bias
        self.up_proj: Linear = Linear(hidden, inner, bias=bias, out_dtype="float32")
        self.activation: Gelu | SquaredReLU = build_activation(mlp.activation)
        self.down_proj: Linear = Linear(inner, hidden, bias=bias, out_dtype="float32")

    def forward(self, x: nn.Tensor, residual: nn.Tensor, norm: Norm) -> tuple[nn.Tensor, nn.Tensor]:
        """Return the layer's output for `norm(x + residual)`, and that sum."""
        x, total = norm.add_linear(x, residual, self.up_proj)
        return self.down_proj(self.activation(x)), total

    def without_norm(self, x: nn.Tensor) -> nn.Tensor:
        """Return the layer's output for `x`."""
        return self.down_proj(self.activation(self.up_proj(x)))


def build_activation(activation: Activation) -> Gelu | SquaredReLU:
    """Return the activation of a layer without a gate."""
    match activation:
        case "squared_relu":
            return SquaredReLU()
        case "gelu" | "quick_gelu":
            return Gelu(activation)
        case _:
            return Gelu("gelu_tanh")


class DenseAndExperts(GatedMlp):
    """A gated MLP and a mixture of experts, which read the same hidden states and are added."""

    def __init__(self, config: DenseAndExpertsConfig, hidden: int, eps: float) -> None:
        super().__init__(config.dense, hidden)
        experts = config.experts
        count, inner = experts.count, experts.intermediate_size
        self.gate: Linear = Linear(
            hidden, count, bias=False, out_dtype="float32", keep_float32=True
        )
        self.moe_gate_up_proj: Linear = Linear(
            hidden, count * 2 * inner, bias=False, out_dtype="float32"
        )
        self.moe_down_proj: Linear = Linear(inner, count * hidden, bias=False, out_dtype="float32")
        self.expert_scales: nn.Parameter = nn.Parameter((count,), "float32")
        self.post_dense_norm: RMSNorm = RMSNorm(hidden, eps)
        self.router_norm: RMSNorm = RMSNorm(hidden, eps)
        self.pre_experts_norm: RMSNorm = RMSNorm(hidden, eps)
        self.post_experts_norm: RMSNorm = RMSNorm(hidden, eps)
        self.router_scale: Scale = Scale(hidden**-0.5)
        self.mix: MoE = MoE(experts)
        self.sum: Add = Add()

    def forward(self, x: nn.Tensor, residual: nn.Tensor, norm: Norm) -> tuple[nn.Tensor, nn.Tensor]:
        """Return the layer's output for `x + residual`, of which the MLP reads `norm`, and that
        sum."""
        dense, total = super().forward(x, residual, norm)
        logits = self.router_scale(self.gate(self.router_norm(total)))
        matrices = (self.moe_gate_up_proj, self.moe_down_proj)
        routing = Routing(logits, expert_scales=self.expert_scales)
        mixed = self.mix(self.pre_experts_norm(total), routing, *matrices)
        return self.sum(self.post_dense_norm(dense), self.post_experts_norm(mixed)), total


FeedForward = GatedMlp | PlainMlp | SparseMlp


def build_feed_forward(config: FeedForwardConfig, hidden: int, eps: float) -> FeedForward:
    """Return a feed-forward layer for hidden states of `hidden` numbers; `eps` is that of norms."""
    if isinstance(config, ExpertsConfig):
        return SparseMlp(config, hidden)

    if isinstance(config, DenseAndExpertsConfig):
        return DenseAndExperts(config, hidden, eps)

    return GatedMlp(config, hidden) if config.gated else PlainMlp(config, hidden)
