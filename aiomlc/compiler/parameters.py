"""The packed parameters of a library, as its metadata lists them."""

from __future__ import annotations

__all__ = ("parameter_records",)

from collections.abc import Iterable
from typing import Any

from aiomlc.compiler.quantization import MatrixFormat, Quantization
from aiomlc.models import Parameter


def parameter_records(
    expected: Iterable[Parameter], quantization: Quantization, order: list[str]
) -> list[dict[str, Any]]:
    """One record for each parameter, by MLC's names; `order` is that in the graph, by its own."""
    parameters = {p.name: p for p in expected}
    names = [name if name in parameters else name.removesuffix(".weight") for name in order]
    if set(names) != set(parameters) or len(names) != len(parameters):
        raise AssertionError(f"graph and weight map differ: {set(names) ^ set(parameters)}")

    return [
        {
            "name": p.mlc_name or p.name,
            "kind": p.kind,
            "format": _format(p, quantization),
            "shape": list(p.shape),
            "sources": list(p.sources),
            "added": p.added,
            "order": p.order,
            **({"mlc_parts": list(p.mlc_parts)} if p.mlc_parts else {}),
            **({"whole": p.whole} if p.whole else {}),
        }
        for p in (parameters[name] for name in names)
    ]


def _format(parameter: Parameter, quantization: Quantization) -> MatrixFormat:
    is_rounded = parameter.kind == "matrix" and not parameter.exact
    return quantization.matrix_format if is_rounded else "f32"
