"""The parameters of a mixture-of-experts layer, and the tensors they come from."""

from __future__ import annotations

__all__ = ("expert_parameters",)

from collections.abc import Iterator

from aiomlc.models.config.layers import ExpertsConfig
from aiomlc.models.parameters.parameter import Parameter


def expert_parameters(prefix: str, experts: ExpertsConfig, hidden: int) -> Iterator[Parameter]:
    """Yield the parameters of one layer under Qwen's names; the matrices of all experts are fused.

    Hugging Face directories have one tensor per expert or, in newer checkpoints, one for all.
    """
    count, inner = experts.count, experts.intermediate_size
    router = f"{prefix}.gate.weight"
    yield Parameter(
        f"{prefix}.gate",
        "matrix",
        (count, hidden),
        (router,),
        fused_source=router,
        keep_float32=True,  # Rounding could change which experts a token is routed to.
    )
    for name, outputs, inputs, parts in (
        ("gate_up_proj", 2 * inner, hidden, ("gate_proj", "up_proj")),
        ("down_proj", hidden, inner, ("down_proj",)),
    ):
        yield Parameter(
            f"{prefix}.moe_{name}",
            "matrix",
            (count * outputs, inputs),
            tuple(f"{prefix}.experts.{i}.{part}.weight" for i in range(count) for part in parts),
            fused_source=f"{prefix}.experts.{name}",
            num_experts=count,
        )
    if experts.shared_size:
        yield from _shared_expert(prefix, experts.shared_size, hidden)


def _shared_expert(prefix: str, inner: int, hidden: int) -> Iterator[Parameter]:
    expert = f"{prefix}.shared_expert"
    gate_up = (f"{expert}.gate_proj.weight", f"{expert}.up_proj.weight")
    yield Parameter(f"{expert}.gate_up_proj", "matrix", (2 * inner, hidden), gate_up)
    yield Parameter(
        f"{expert}.down_proj", "matrix", (hidden, inner), (f"{expert}.down_proj.weight",)
    )
    yield Parameter(
        f"{expert}_gate", "matrix", (1, hidden), (f"{expert}_gate.weight",), keep_float32=True
    )
