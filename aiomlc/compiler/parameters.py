"""The packed parameters of a compiled library, as its metadata lists them."""

from __future__ import annotations

__all__ = ("INPUT_ORDER", "pack_parameters", "parameter_records", "shard_quantization")

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Final

from aiomlc.compiler.quantization import Quantization
from aiomlc.models import Parameter
from aiomlc.models.parameters.packed_layout import LayoutFamily
from aiomlc.models.parameters.packed_parameter import PackedParameter

INPUT_ORDER: Final = "input_order"  #: The parameter of a layer that has the order of its inputs.


def pack_parameters(
    parameters: Iterable[Parameter], quantization: Quantization
) -> list[PackedParameter]:
    """Return the parameters in the formats of `quantization`, with the orders that it needs."""
    return [
        PackedParameter.from_parameter(p, quantization.layout_of(p))
        for p in _with_orders(parameters, quantization)
    ]


def shard_quantization(parameters: Iterable[Parameter], quantization: Quantization) -> Quantization:
    """Return a quantization with the layouts of the matrices of one shard."""
    if not quantization.layouts:
        return quantization

    layouts = {
        p.name: PackedParameter.from_parameter(p, quantization.layout_of(p)).shard_layout
        for p in parameters
        if p.kind == "matrix"
    }
    return replace(quantization, layouts=layouts)


def parameter_records(
    parameters: Iterable[Parameter],
    quantization: Quantization,
    family: LayoutFamily,
    graph_names: list[str],
) -> list[dict[str, Any]]:
    """Return the JSON records of the packed parameters, in the order of `graph_names`.

    Args:
        graph_names: The names of the graph's parameters; a matrix may end in `.weight`.
    """
    by_name = {p.name: p for p in _with_orders(parameters, quantization)}
    names = [name if name in by_name else name.removesuffix(".weight") for name in graph_names]
    if set(names) != set(by_name) or len(names) != len(by_name):
        mismatch = sorted(set(names) ^ set(by_name))
        raise AssertionError(f"the graph's parameters differ from the model's: {mismatch}")

    packed = (
        PackedParameter.from_parameter(by_name[name], quantization.layout_of(by_name[name]))
        for name in names
    )
    return [parameter.stored_as(family).as_json() for parameter in packed]


def _with_orders(
    parameters: Iterable[Parameter], quantization: Quantization
) -> Iterator[Parameter]:
    """Yield the parameters, each matrix whose columns are ordered with that order."""
    for parameter in parameters:
        yield parameter
        if parameter.name in quantization.ordered:
            name = f"{parameter.name}.{INPUT_ORDER}"
            yield Parameter(name, "order", parameter.shape[1:], parameter.sources)
