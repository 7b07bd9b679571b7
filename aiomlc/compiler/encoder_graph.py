"""An encoder's graph, and the metadata of its library."""

from __future__ import annotations

__all__ = ("encoder_graph",)

import tvm
from tvm.relax.frontend import nn

from aiomlc.compiler.interface import Backend, GraphCompiler
from aiomlc.compiler.job import LibraryMetadata
from aiomlc.compiler.parameters import parameter_records
from aiomlc.compiler.quantization import Quantization
from aiomlc.models import BlockEncoderConfig, EncoderConfig, encoder_parameters
from aiomlc.models.graph.block_encoder import BlockEncoder
from aiomlc.models.graph.encoder import Encoder


def encoder_graph(
    config: EncoderConfig | BlockEncoderConfig,
    quantization: Quantization,
    backend: Backend,
    compiler: GraphCompiler,
) -> tuple[tvm.IRModule, LibraryMetadata]:
    """Return the module with the function `encode`, and the library's metadata."""
    graph = Encoder(config) if isinstance(config, EncoderConfig) else BlockEncoder(config)
    encoder = compiler.lower_encoder(graph, quantization)
    tokens = nn.spec.Tensor(["n"], "int32")
    spec = {
        "encode": {
            "ids": tokens,
            "positions": tokens,
            "types": tokens,
            "lengths": nn.spec.Tensor(["b"], "int32"),
            "$": {"param_mode": "packed", "effect_mode": "none"},
        }
    }
    module, named, _ = encoder.export_tvm(spec, allow_extern=True)
    order = [name for name, _ in named]
    metadata = {
        "model_type": config.model_type,
        "quantization": quantization.name,
        "vocab_size": config.vocab_size,
        "context_window_size": config.max_tokens,
        "hidden_size": config.hidden_size,
        "position_offset": config.position_offset,
        "num_token_types": config.num_token_types,
        "has_token_logits": isinstance(config, BlockEncoderConfig) and config.has_token_logits,
        "num_labels": 0 if config.classifier is None else config.classifier.num_labels,
        "params": parameter_records(
            encoder_parameters(config), quantization, backend.layout_family, order
        ),
    }
    return module, metadata
