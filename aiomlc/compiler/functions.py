"""The functions of graphs that run without the core: their inputs, and their export."""

from __future__ import annotations

__all__ = ("Specs", "export_functions", "floats", "ints")

from collections.abc import Mapping
from typing import Any, TypeAlias

import tvm
from tvm.relax.frontend import nn

from aiomlc.models.graph.any_encoder import AnyEncoder

#: The specifications of the inputs of functions, in their order.
Specs: TypeAlias = Mapping[str, Mapping[str, Any]]


def ints(*shape: str | int) -> Any:  # noqa: ANN401 - tvm is untyped.
    """Return the specification of an int32 array; names in its shape are sizes of inputs."""
    return nn.spec.Tensor(list(shape), "int32")


def floats(*shape: str | int) -> Any:  # noqa: ANN401 - tvm is untyped.
    """Return the specification of a float32 array, as `ints`."""
    return nn.spec.Tensor(list(shape), "float32")


def export_functions(graph: AnyEncoder, functions: Specs) -> tuple[tvm.IRModule, list[str]]:
    """Return the module of a graph's functions, and the names of its parameters in their order."""
    packed = {"param_mode": "packed", "effect_mode": "none"}
    spec = {name: {**inputs, "$": packed} for name, inputs in functions.items()}
    module, named, _ = graph.export_tvm(spec, allow_extern=True)
    return module, [name for name, _ in named]
