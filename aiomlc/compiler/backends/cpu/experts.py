"""A mixture of experts as one native kernel."""

from __future__ import annotations

__all__ = ("CpuMoE",)

from tvm.relax.frontend import nn

from aiomlc.compiler.backends.cpu.kernel_call import call_kernel
from aiomlc.compiler.backends.cpu.layers import CpuLinear
from aiomlc.compiler.backends.cpu.matrix import KernelLayout, expert_layout
from aiomlc.models.config.activation import ExpertActivation
from aiomlc.models.graph.module import Module
from aiomlc.models.graph.moe import SIGMOID_EPSILON, MoE, Routing


class CpuMoE(Module):
    """A mixture of experts."""

    def __init__(self, layer: MoE) -> None:
        super().__init__()
        self.count: int = layer.count
        self.routing: tuple[int, int] = (layer.per_token, int(layer.normalize))
        self.activation: ExpertActivation = layer.activation
        self.is_sigmoid: bool = layer.scores == "sigmoid"
        self.scale: float = layer.scale

    def forward(
        self,
        x: nn.Tensor,
        routing: Routing,
        gate_up: CpuLinear,
        down: CpuLinear,
        shared: tuple[nn.Tensor, nn.Tensor] | None = None,
    ) -> nn.Tensor:
        count = self.count
        inputs: list[object] = [x, routing.logits]
        for matrix in (gate_up, down):
            inputs += [matrix.weight, KernelLayout(expert_layout(matrix.layout.layout, count))]
            if matrix.bias is not None:
                inputs.append(matrix.bias.reshape(count, matrix.outputs // count))
        inputs += [*self.routing, *(shared or ())]
        if self.is_sigmoid:
            inputs += [SIGMOID_EPSILON, self.scale]
        inputs += [extra for extra in routing[1:] if extra is not None]
        kernel = self._kernel(gate_up, shared, routing)
        return call_kernel(kernel, inputs, x.shape, "float32")

    def _kernel(self, gate_up: CpuLinear, shared: object, routing: Routing) -> str:
        parts = (
            *("bias",) * (gate_up.bias is not None),
            *("shared",) * (shared is not None),
            *("sigmoid",) * self.is_sigmoid,
            *("selection_bias",) * (routing.selection_bias is not None),
            *("scaled",) * (routing.expert_scales is not None),
        )
        match self.activation, parts:
            case "silu", ():
                return "mix_experts"
            case "silu", ("shared",):
                return "mix_experts_shared"
            case "silu", ("sigmoid",):
                return "mix_experts_sigmoid"
            case "silu", ("sigmoid", "selection_bias"):
                return "mix_experts_biased_sigmoid"
            case "gelu_tanh", ("scaled",):
                return "mix_experts_scaled_gelu_tanh"
            case "clamped_swiglu", ("bias",):
                return "mix_experts_clamped_swiglu"
            case combination:
                raise NotImplementedError(f"there is no kernel for experts with {combination}")
