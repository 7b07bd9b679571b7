"""The graph of a vision tower, and the metadata of its library."""

from __future__ import annotations

__all__ = ("vision_graph",)

from typing import Any, Final

import tvm
from tvm.relax.frontend import nn

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
    packed = {"param_mode": "packed", "effect_mode": "none"}
    module, named, _ = tower.export_tvm({"encode": {**inputs, "$": packed}}, allow_extern=True)
    metadata = {
        "model_type": config.model_type,
        "quantization": quantization.name,
        "inputs": {"encode": list(inputs)},
        "embedded_size": config.embedded_size,
        "has_class_token": config.has_class_token,
        "params": parameter_records(
            vision_parameters(config),
            quantization,
            backend.layout_family,
            [name for name, _ in named],
        ),
    }
    return module, metadata


def _inputs(config: VisionConfig) -> dict[str, Any]:
    """Return the specifications of the inputs of `encode`, in their order."""
    patches = nn.spec.Tensor(["n", config.patch_inputs], "float32")
    lengths = nn.spec.Tensor(["b"], "int32")
    order = nn.spec.Tensor(["m", config.num_merged], "int32")
    if not config.rope_theta:
        return {
            "patches": patches,
            "flags": nn.spec.Tensor(["n", 2], "float32"),
            "positions": nn.spec.Tensor(["n"], "int32"),
            "lengths": lengths,
            "order": order,
        }

    return {
        "patches": patches,
        "positions": nn.spec.Tensor([_ROPE_AXES, "n"], "int32"),
        "lengths": lengths,
        "window_lengths": nn.spec.Tensor(["w"], "int32"),
        "order": order,
        "table_ids": nn.spec.Tensor(["t"], "int32"),
        "table_weights": nn.spec.Tensor(["n", config.position_taps], "float32"),
    }
