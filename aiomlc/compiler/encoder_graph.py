"""An encoder's graph, and the metadata of its library."""

from __future__ import annotations

__all__ = ("encoder_graph",)

import tvm

from aiomlc.compiler.functions import Specs, export_functions, floats, ints
from aiomlc.compiler.interface import Backend, GraphCompiler
from aiomlc.compiler.job import LibraryMetadata
from aiomlc.compiler.parameters import parameter_records
from aiomlc.compiler.quantization import Quantization
from aiomlc.models import BlockEncoderConfig, EncoderConfig, encoder_parameters
from aiomlc.models.config.encoder import RelativePositions
from aiomlc.models.graph.block_encoder import BlockEncoder
from aiomlc.models.graph.encoder import DisentangledEncoder, Encoder
from aiomlc.models.parameters.packed_layout import TILE_ROWS


def encoder_graph(
    config: EncoderConfig | BlockEncoderConfig,
    quantization: Quantization,
    backend: Backend,
    compiler: GraphCompiler,
) -> tuple[tvm.IRModule, LibraryMetadata]:
    """Return the module with the function `encode`, and the library's metadata.

    If the metadata's `is_prepared` is true, the last argument of `encode` is the result of
    `prepare`, which the parameters alone determine.
    """
    encoder = compiler.lower_encoder(_build_graph(config), quantization)
    is_prepared = isinstance(encoder, DisentangledEncoder)
    module, order = export_functions(encoder, _functions(config))
    metadata = {
        "model_type": config.model_type,
        "quantization": quantization.name,
        "vocab_size": config.vocab_size,
        "context_window_size": config.max_tokens,
        "hidden_size": config.hidden_size,
        "is_prepared": is_prepared,
        "position_offset": config.position_offset,
        "num_token_types": config.num_token_types,
        "has_token_logits": isinstance(config, BlockEncoderConfig) and config.has_token_logits,
        "num_labels": 0 if config.classifier is None else config.classifier.num_labels,
        "params": parameter_records(
            encoder_parameters(config), quantization, backend.layout_family, order
        ),
    }
    return module, metadata


def _build_graph(
    config: EncoderConfig | BlockEncoderConfig,
) -> Encoder | DisentangledEncoder | BlockEncoder:
    match config:
        case BlockEncoderConfig():
            return BlockEncoder(config)
        case EncoderConfig(position_bias=RelativePositions()):
            return DisentangledEncoder(config)
        case EncoderConfig():
            return Encoder(config)


def _functions(config: EncoderConfig | BlockEncoderConfig) -> Specs:
    """Return the specifications of the functions' inputs."""
    tokens = ints("n")
    encode = {"ids": tokens, "positions": tokens, "types": tokens, "lengths": ints("b")}
    match config:
        case EncoderConfig(position_bias=RelativePositions(count=count)):
            heads = config.num_attention_heads
            sizes = [heads, -(-2 * count // TILE_ROWS), config.hidden_size // heads, TILE_ROWS]
            tiles = floats(config.num_hidden_layers, 2, *sizes)
            return {"prepare": {}, "encode": {**encode, "position_tiles": tiles}}
        case _:
            return {"encode": encode}
