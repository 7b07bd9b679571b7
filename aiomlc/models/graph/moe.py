"""A mixture-of-experts layer in plain Relax, for which any target can generate code."""

from __future__ import annotations

__all__ = ("SIGMOID_EPSILON", "MoE", "Routing", "SharedExpert", "SparseMlp")

from typing import Literal, NamedTuple

from tvm import relax
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn import op

from aiomlc.models.config.activation import ExpertActivation
from aiomlc.models.config.layers import ExpertsConfig
from aiomlc.models.graph.expert_product import highest_experts
from aiomlc.models.graph.layers import Linear, Norm, SiluMul
from aiomlc.models.graph.module import Module

_SWIGLU_LIMIT = 7.0
_SWIGLU_ALPHA = 1.702


SIGMOID_EPSILON = 1e-6  #: Added to the sum of the scores that are scaled to sum to 1.


class Routing(NamedTuple):
    """The output of a router, from which experts and their weights are chosen."""

    logits: nn.Tensor  #: `[n, count]`.
    #: Added to the scores `[n, count]` for the choice of experts, if any.
    selection_bias: nn.Tensor | None = None
    expert_scales: nn.Tensor | None = None  #: Factors `[count]` on the experts' weights, if any.


class MoE(Module):
    """The weighted sum of the experts that a router chooses for each row."""

    def __init__(self, experts: ExpertsConfig) -> None:
        super().__init__()
        self.count: int = experts.count
        self.per_token: int = experts.per_token
        self.inner: int = experts.intermediate_size
        self.normalize: bool = experts.normalize
        self.activation: ExpertActivation = experts.activation
        self.scores: Literal["softmax", "sigmoid"] = experts.scores
        self.scale: float = experts.scale

    def forward(
        self,
        x: nn.Tensor,
        routing: Routing,
        gate_up: Linear,
        down: Linear,
        shared: tuple[nn.Tensor, nn.Tensor] | None = None,
    ) -> nn.Tensor:
        """Return the mixture `[n, hidden]` for `x` `[n, hidden]`.

        Args:
            x: The input rows.
            routing: The router's output.
            gate_up: The gate and up matrices of all experts, one expert after the other; its bias
                is that of all of them.
            down: The down matrices and their bias in the same way.
            shared: The shared expert's output `[n, hidden]` and its gate's logits `[n, 1]`, if any.
        """
        n, size = x.shape
        experts, weights = self._chosen(routing)
        gate_up_rows = gate_up.of_experts(x.reshape(n, 1, size), experts, self.count)
        gate, up = op.split(gate_up_rows, 2, axis=-1)
        outputs = down.of_experts(self._gated(gate, up), experts, self.count)
        routed = op.sum(op.multiply(outputs, weights.reshape(n, self.per_token, 1)), axis=1)
        if shared is None:
            return routed

        value, gate_logits = shared
        return op.add(op.multiply(op.sigmoid(gate_logits), value), routed)

    def _gated(self, gate: nn.Tensor, up: nn.Tensor) -> nn.Tensor:
        if self.activation == "silu":
            return op.multiply(op.silu(gate), up)

        if self.activation == "gelu_tanh":
            return op.multiply(op.gelu(gate, approximate="tanh"), up)

        limit = _constant(_SWIGLU_LIMIT)
        clamped = op.minimum(gate, limit)
        factor = op.add(op.maximum(op.minimum(up, limit), op.negative(limit)), _constant(1.0))
        glu = op.multiply(clamped, op.sigmoid(op.multiply(clamped, _constant(_SWIGLU_ALPHA))))
        return op.multiply(factor, glu)

    def _chosen(self, routing: Routing) -> tuple[nn.Tensor, nn.Tensor]:
        """Return the experts of each row, int32 `[n, per_token]`, and their weights."""
        is_sigmoid = self.scores == "sigmoid"
        scores = op.sigmoid(routing.logits) if is_sigmoid else op.softmax(routing.logits)
        bias = routing.selection_bias
        keys = scores if bias is None else op.add(scores, bias)
        experts, weights = highest_experts(keys, scores, self.per_token)
        if self.normalize:
            total = op.sum(weights, axis=-1, keepdims=True)
            weights = op.divide(weights, op.add(total, _constant(SIGMOID_EPSILON * is_sigmoid)))
        if is_sigmoid:
            weights = op.multiply(weights, _constant(self.scale))
        if routing.expert_scales is not None:
            weights = op.multiply(weights, op.take(routing.expert_scales, experts, axis=0))
        return experts, weights


def _constant(value: float) -> nn.Tensor:
    return nn.Tensor(_expr=relax.const(value, "float32"))


class SharedExpert(Module):
    """A gated MLP that is applied to every row."""

    def __init__(self, hidden: int, inner: int) -> None:
        super().__init__()
        self.gate_up_proj: Linear = Linear(hidden, 2 * inner, bias=False, out_dtype="float32")
        self.activation: SiluMul = SiluMul()
        self.down_proj: Linear = Linear(inner, hidden, bias=False, out_dtype="float32")

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return self.down_proj(self.activation(self.gate_up_proj(x)))


class SparseMlp(Module):
    """A mixture of experts in place of a gated MLP."""

    def __init__(self, experts: ExpertsConfig, hidden: int) -> None:
        super().__init__()
        outer, inner = experts.count * hidden, experts.count * 2 * experts.intermediate_size
        bias = experts.bias
        self.gate: Linear = Linear(
            hidden, experts.count, bias=bias, out_dtype="float32", keep_float32=True
        )
        self.moe_gate_up_proj: Linear = Linear(hidden, inner, bias=bias, out_dtype="float32")
        self.moe_down_proj: Linear = Linear(
            experts.intermediate_size, outer, bias=bias, out_dtype="float32"
        )
        self.mix: MoE = MoE(experts)
        self.expert_bias: nn.Parameter | None = None
        if experts.selection_bias:
            self.expert_bias = nn.Parameter((experts.count,), "float32")
        self.shared_expert: SharedExpert | None = None
        if experts.shared_size:
            self.shared_expert = SharedExpert(hidden, experts.shared_size)
            self.shared_expert_gate: Linear = Linear(
                hidden, 1, bias=False, out_dtype="float32", keep_float32=True
            )

    def forward(self, x: nn.Tensor, residual: nn.Tensor, norm: Norm) -> tuple[nn.Tensor, nn.Tensor]:
        """Return the mixture for `norm(x + residual)`, and that sum."""
        x, total = norm.add(x, residual)
        return self.without_norm(x), total

    def without_norm(self, x: nn.Tensor) -> nn.Tensor:
        """Return the mixture for `x`."""
        shared = None
        if self.shared_expert is not None:
            shared = (self.shared_expert(x), self.shared_expert_gate(x))
        routing = Routing(self.gate(x), selection_bias=self.expert_bias)
        return self.mix(x, routing, self.moe_gate_up_proj, self.moe_down_proj, shared)
