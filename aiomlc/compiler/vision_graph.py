"""The graph of a vision tower, and the metadata of its library."""

from __future__ import annotations

__all__ = ("vision_graph",)

from typing import Any, Final

import tvm

from aiomlc.compiler.functions import export_functions, floats, ints
from aiomlc.compiler.interface import Backend, GraphCompiler
from aiomlc.compiler.job import LibraryMetadata
from aiomlc.compiler.parameters import parameter_records
from aiomlc.compiler.quantization import Quantization
from aiomlc.models import VisionConfig, vision_parameters
from aiomlc.models.graph.grid_tower import GridTower
from aiomlc.models.graph.vision import VisionTower

_ROPE_AXES: Final = 3  # Time, height and width.


def vision_graph(
    config: VisionConfig, quantization: Quantization, backend: Backend, compiler: GraphCompiler
) -> tuple[tvm.IRModule, LibraryMetadata]:
    """Return the module with the function `encode`, and the library's metadata."""
    graph = GridTower(config) if config.rope_theta else VisionTower(config)
    tower = compiler.lower_encoder(graph, quantization)
    inputs = _inputs(config)
    module, order = export_functions(tower, {"encode": inputs})
    metadata = {
        "model_type": config.model_type,
        "quantization": quantization.name,
        "inputs": {"encode": list(inputs)},
        "embedded_size": config.embedded_size,
        "has_class_token": config.has_class_token,
        "params": parameter_records(
            vision_parameters(config), quantization, backend.layout_family, order
        ),
    }
    return module, metadata


def _inputs(config: VisionConfig) -> dict[str, Any]:
    """Return the specifications of the inputs of `encode`, in their order."""
    patches, lengths = floats("n", config.patch_inputs), ints("b")
    order = ints("m", config.num_merged)
    if not config.rope_theta:
        return {
            "patches": patches,
            "flags": floats("n", 2),
            "positions": ints("n"),
            "lengths": lengths,
            "order": order,
        }

    return {
        "patches": patches,
        "positions": ints(_ROPE_AXES, "n"),
        "lengths": lengths,
        "window_lengths": ints("w"),
        "order": order,
        "table_ids": ints("t"),
        "table_weights": floats("n", config.position_taps),
    }
