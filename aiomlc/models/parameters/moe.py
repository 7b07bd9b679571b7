"""The parameters of a mixture-of-experts layer, and the tensors they come from."""

from __future__ import annotations

__all__ = ("expert_parameters",)

from collections.abc import Iterator
from dataclasses import replace

from aiomlc.models.config.checkpoint import HFExpertsLayout
from aiomlc.models.config.layers import ExpertsConfig
from aiomlc.models.parameters.parameter import Parameter, RowOrder, Split


def expert_parameters(
    prefix: str, experts: ExpertsConfig, hidden: int, layout: HFExpertsLayout
) -> Iterator[Parameter]:
    """Yield the parameters of one layer under Qwen's names; the matrices of all experts are fused.

    Hugging Face directories have one tensor per expert or, in newer checkpoints, one for all, with
    the layout `layout`.
    """
    inner = experts.intermediate_size
    yield from _router(prefix, experts, hidden)
    gate_up, down = ("gate_proj", "up_proj"), ("down_proj",)
    rows = Split("rows", (inner,) * 2 * experts.count)
    for parameter in _fused(prefix, "gate_up_proj", (2 * inner, hidden), gate_up, experts, layout):
        yield replace(parameter, split=rows)
    for parameter in _fused(prefix, "down_proj", (hidden, inner), down, experts, layout):
        yield replace(parameter, split=Split("columns" if parameter.kind == "matrix" else "first"))
    if experts.selection_bias:
        yield Parameter(
            f"{prefix}.expert_bias", "vector", (experts.count,), (f"{prefix}.expert_bias",)
        )
    if experts.expert_scales:
        name = f"{prefix}.expert_scales"
        yield Parameter(name, "vector", (experts.count,), (name,))
    if experts.shared_size:
        yield from _shared_expert(prefix, experts.shared_size, hidden)


def _router(prefix: str, experts: ExpertsConfig, hidden: int) -> Iterator[Parameter]:
    router = f"{prefix}.gate"
    weight, bias = f"{router}.weight", f"{router}.bias"
    yield Parameter(
        router,
        "matrix",
        (experts.count, hidden),
        (weight,),
        fused_source=weight,
        keep_float32=True,  # Rounding could change which experts a token is routed to.
    )
    if experts.bias:
        yield Parameter(bias, "vector", (experts.count,), (bias,))


def _fused(
    prefix: str,
    name: str,
    shape: tuple[int, int],
    parts: tuple[str, ...],
    experts: ExpertsConfig,
    layout: HFExpertsLayout,
) -> Iterator[Parameter]:
    """Yield a matrix of all experts and its bias; `shape` and `parts` are those of one expert."""
    count, (outputs, inputs) = experts.count, shape
    alternates = layout == "inputs" and len(parts) > 1
    row_order = RowOrder(count, outputs // len(parts), (1,) * len(parts)) if alternates else None
    modules = [f"{prefix}.experts.{i}.{part}" for i in range(count) for part in parts]
    yield Parameter(
        f"{prefix}.moe_{name}",
        "matrix",
        (count * outputs, inputs),
        tuple(f"{module}.weight" for module in modules),
        fused_source=f"{prefix}.experts.{name}",
        fused_row_order=row_order,
        fused_layout=layout,
        num_experts=count,
    )
    if experts.bias:
        yield Parameter(
            f"{prefix}.moe_{name}.bias",
            "vector",
            (count * outputs,),
            tuple(f"{module}.bias" for module in modules),
            fused_source=f"{prefix}.experts.{name}_bias",
            fused_row_order=row_order,
            fused_layout=layout,
        )


def _shared_expert(prefix: str, inner: int, hidden: int) -> Iterator[Parameter]:
    expert = f"{prefix}.shared_expert"
    gate_up = (f"{expert}.gate_proj.weight", f"{expert}.up_proj.weight")
    yield Parameter(
        f"{expert}.gate_up_proj",
        "matrix",
        (2 * inner, hidden),
        gate_up,
        split=Split("rows", (inner, inner)),
    )
    yield Parameter(
        f"{expert}.down_proj",
        "matrix",
        (hidden, inner),
        (f"{expert}.down_proj.weight",),
        split=Split("columns"),
    )
    yield Parameter(
        f"{expert}_gate", "matrix", (1, hidden), (f"{expert}_gate.weight",), keep_float32=True
    )
