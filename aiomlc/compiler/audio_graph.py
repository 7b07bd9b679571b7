"""The graph of an audio tower, and the metadata of its library."""

from __future__ import annotations

__all__ = ("audio_graph",)

import tvm

from aiomlc.compiler.functions import Specs, export_functions, floats, ints
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
    module, order = export_functions(tower, inputs)
    metadata = {
        "model_type": config.model_type,
        "quantization": quantization.name,
        "inputs": {name: list(values) for name, values in inputs.items()},
        "embedded_size": config.embedded_size,
        "params": parameter_records(
            audio_parameters(config), quantization, backend.layout_family, order
        ),
    }
    return module, metadata


def _inputs(config: AudioConfig) -> Specs:
    """Return the specifications of the functions' inputs, in their order."""
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
