"""A mixture-of-experts layer in plain Relax, for which any target can generate code."""

from __future__ import annotations

__all__ = ("SIGMOID_EPSILON", "MoE", "Routing", "SharedExpert", "SparseMlp")

from typing import Literal, NamedTuple

from tvm import relax
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn import op

from aiomlc.models.config.activation import ExpertActivation
from aiomlc.models.config.layers import ExpertsConfig
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
    """The weighted sum of the experts that a router chooses for each row.

    This implementation computes all experts for all rows. Experts that were not chosen have the
    weight 0.
    """

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
        gate, up = op.split(gate_up(x).reshape(n, self.count, 2 * self.inner), 2, axis=-1)
        gated = op.permute_dims(self._gated(gate, up), [1, 0, 2])
        transposed = op.permute_dims(down.weight.reshape(self.count, size, self.inner), [0, 2, 1])
        outputs = op.matmul(gated, transposed)
        if down.bias is not None:
            outputs = op.add(outputs, down.bias.reshape(self.count, 1, size))
        weights = self._weights(routing.logits, routing.selection_bias).reshape(self.count, n, 1)
        if routing.expert_scales is not None:
            weights = op.multiply(weights, routing.expert_scales.reshape(self.count, 1, 1))
        routed = op.sum(op.multiply(outputs, weights), axis=0)
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

    def _weights(self, logits: nn.Tensor, selection_bias: nn.Tensor | None) -> nn.Tensor:
        """Return the experts' weights `[count, n]` for logits `[n, count]`; 0 if not chosen."""
        is_sigmoid = self.scores == "sigmoid"
        scores = op.sigmoid(logits) if is_sigmoid else op.softmax(logits)
        keys = scores if selection_bias is None else op.add(scores, selection_bias)
        _, indices = op.topk(keys, self.per_token, ret_type="both")
        one, zero = relax.prim_value(1), relax.prim_value(0)
        hot = relax.op.one_hot(indices._expr, one, zero, self.count)
        one_hot = nn.Tensor(_expr=relax.BlockBuilder.current().emit(hot)).astype("float32")
        weights = op.multiply(op.sum(one_hot, axis=1), scores)
        if self.normalize:
            total = op.sum(weights, axis=-1, keepdims=True)
            weights = op.divide(weights, op.add(total, _constant(SIGMOID_EPSILON * is_sigmoid)))
        if is_sigmoid:
            weights = op.multiply(weights, _constant(self.scale))
        return op.permute_dims(weights, [1, 0])


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
