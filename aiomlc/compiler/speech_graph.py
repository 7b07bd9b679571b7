"""The graph of a model that transcribes speech, and the metadata of its library."""

from __future__ import annotations

__all__ = ("speech_graph",)

import tvm

from aiomlc.compiler.functions import Specs, export_functions, floats, ints
from aiomlc.compiler.interface import Backend, GraphCompiler
from aiomlc.compiler.job import LibraryMetadata
from aiomlc.compiler.parameters import parameter_records
from aiomlc.compiler.quantization import Quantization
from aiomlc.config import PAGE_SIZE
from aiomlc.models import SpeechConfig, speech_parameters
from aiomlc.models.graph.speech import SpeechModel

_TAPS = 3  # Frames of a convolution.


def speech_graph(
    config: SpeechConfig, quantization: Quantization, backend: Backend, compiler: GraphCompiler
) -> tuple[tvm.IRModule, LibraryMetadata]:
    """Return the module with `encode`, `remember` and `decode`, and the library's metadata."""
    model = compiler.lower_encoder(SpeechModel(config), quantization)
    inputs = _inputs(config)
    module, order = export_functions(model, inputs)
    metadata = {
        "model_type": config.model_type,
        "quantization": quantization.name,
        "inputs": {name: list(values) for name, values in inputs.items()},
        "vocab_size": config.vocab_size,
        "num_mels": config.num_mels,
        "memory_layers": config.decoder.num_layers,
        "page_elements": _page_elements(config),
        "window_positions": config.encoder.num_positions,
        "context_window_size": config.max_tokens,
        "params": parameter_records(
            speech_parameters(config), quantization, backend.layout_family, order
        ),
    }
    return module, metadata


def _page_elements(config: SpeechConfig) -> int:
    return 2 * PAGE_SIZE * config.hidden_size


def _inputs(config: SpeechConfig) -> Specs:
    """Return the specifications of the functions' inputs, in their order."""
    layers, page = config.decoder.num_layers, _page_elements(config)

    rows = {"lengths": ints("b"), "ends": ints("b"), "slots": ints("b")}
    return {
        "encode": {
            "frames": floats("n", _TAPS * config.num_mels),
            "weights": floats("n", 1),
            "order": ints("m", _TAPS),
            "positions": ints("m"),
            "lengths": ints("b"),
        },
        "remember": {
            "states": floats("m", config.hidden_size),
            **rows,
            "memory": floats(layers, "s", "p", page),
        },
        "decode": {
            "ids": ints("n"),
            "positions": ints("n"),
            "lengths": ints("b"),
            "ends": ints("b"),
            "window_ends": ints("b"),
            "slots": ints("b"),
            "order": ints("r", 1),
            "memory": floats(layers, "s", "p", page),
            "window_memory": floats(layers, "s", "w", page),
        },
    }
