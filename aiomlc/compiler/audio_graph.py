"""The graph of an audio tower, and the metadata of its library."""

from __future__ import annotations

__all__ = ("audio_graph",)

from typing import Any

import tvm
from tvm.relax.frontend import nn

from aiomlc.compiler.interface import Backend, GraphCompiler
from aiomlc.compiler.job import LibraryMetadata
from aiomlc.compiler.parameters import parameter_records
from aiomlc.compiler.quantization import Quantization
from aiomlc.models import AudioConfig, audio_parameters
from aiomlc.models.config.audio import CONV_TAPS
from aiomlc.models.graph.audio import AudioTower


def audio_graph(
    config: AudioConfig, quantization: Quantization, backend: Backend, compiler: GraphCompiler
) -> tuple[tvm.IRModule, LibraryMetadata]:
    """Return the module with `convolve` and `encode`, and the library's metadata."""
    tower = compiler.lower_encoder(AudioTower(config), quantization)
    inputs = _inputs(config)
    packed = {"param_mode": "packed", "effect_mode": "none"}
    spec = {name: {**values, "$": packed} for name, values in inputs.items()}
    module, named, _ = tower.export_tvm(spec, allow_extern=True)
    metadata = {
        "model_type": config.model_type,
        "quantization": quantization.name,
        "inputs": {name: list(values) for name, values in inputs.items()},
        "embedded_size": config.embedded_size,
        "params": parameter_records(
            audio_parameters(config),
            quantization,
            backend.layout_family,
            [name for name, _ in named],
        ),
    }
    return module, metadata


def _inputs(config: AudioConfig) -> dict[str, dict[str, Any]]:
    """Return the specifications of the functions' inputs, in their order."""

    def ints(*shape: str | int) -> Any:  # noqa: ANN401 - tvm is untyped.
        return nn.spec.Tensor(list(shape), "int32")

    def floats(*shape: str | int) -> Any:  # noqa: ANN401 - tvm is untyped.
        return nn.spec.Tensor(list(shape), "float32")

    return {
        "convolve": {
            "taps": floats("n", CONV_TAPS),
            "weights1": floats("n", 1),
            "order2": ints("k", CONV_TAPS),
            "weights2": floats("k", 1),
            "order3": ints("j", CONV_TAPS),
            "order": ints("m", config.conv_bands[-1]),
        },
        "encode": {
            "states": floats("n", config.hidden_size),
            "positions": ints("n"),
            "lengths": ints("b"),
        },
    }
