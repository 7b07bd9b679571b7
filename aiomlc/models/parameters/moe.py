"""The parameters of a mixture of experts, and the tensors they come from."""

from __future__ import annotations

__all__ = ("expert_parameters",)

from collections.abc import Iterator

from aiomlc.models.config.moe import ExpertsConfig
from aiomlc.models.parameters.parameter import Parameter


def expert_parameters(at: str, experts: ExpertsConfig, hidden: int) -> Iterator[Parameter]:
    """The parameters of one layer, by Qwen's names: the matrices of all experts are one.

    Hubs have a tensor for each expert or, as newer tools write them, one for all.
    """
    count, inner = experts.count, experts.intermediate_size
    # Rounding could change which experts a token goes to.
    router = f"{at}.gate.weight"
    yield Parameter(f"{at}.gate", "matrix", (count, hidden), (router,), whole=router, exact=True)
    for name, outputs, inputs, parts in (
        ("gate_up_proj", 2 * inner, hidden, ("gate_proj", "up_proj")),
        ("down_proj", hidden, inner, ("down_proj",)),
    ):
        yield Parameter(
            f"{at}.moe_{name}",
            "matrix",
            (count * outputs, inputs),
            tuple(f"{at}.experts.{i}.{part}.weight" for i in range(count) for part in parts),
            whole=f"{at}.experts.{name}",
        )
    if experts.shared_size:
        yield from _shared(at, experts.shared_size, hidden)


def _shared(at: str, inner: int, hidden: int) -> Iterator[Parameter]:
    one = f"{at}.shared_expert"
    sources = (f"{one}.gate_proj.weight", f"{one}.up_proj.weight")
    yield Parameter(f"{one}.gate_up_proj", "matrix", (2 * inner, hidden), sources)
    yield Parameter(f"{one}.down_proj", "matrix", (hidden, inner), (f"{one}.down_proj.weight",))
    yield Parameter(f"{one}_gate", "matrix", (1, hidden), (f"{one}_gate.weight",), exact=True)
