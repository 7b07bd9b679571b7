"""An encoder's graph for the CPU backend, and the metadata of its library."""

from __future__ import annotations

__all__ = ("encoder_graph",)

import tvm
from tvm.relax.frontend import nn

from aiomlc.compiler.backends.cpu import lower_to_cpu
from aiomlc.compiler.backends.cpu_layers import call_kernel
from aiomlc.compiler.job import LibraryMetadata
from aiomlc.compiler.parameters import parameter_records
from aiomlc.compiler.quantization import Quantization
from aiomlc.models import EncoderConfig, encoder_parameters
from aiomlc.models.graph.encoder import Encoder


def encoder_graph(
    config: EncoderConfig, quantization: Quantization
) -> tuple[tvm.IRModule, LibraryMetadata]:
    """Return the module with the function `encode`, and the library's metadata."""
    encoder = lower_to_cpu(Encoder(config, _packed_attention), quantization)
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
        "context_window_size": config.num_positions,
        "hidden_size": config.hidden_size,
        "params": parameter_records(encoder_parameters(config), quantization, order),
    }
    return module, metadata


def _packed_attention(qkv: nn.Tensor, lengths: nn.Tensor, num_heads: int) -> nn.Tensor:
    """Return attention outputs `[n, hidden]`; a token attends to all tokens of the same input."""
    shape = (qkv.shape[0], int(qkv.shape[1]) // 3)
    return call_kernel("packed_attention", [qkv, lengths, num_heads], shape, "float32")
