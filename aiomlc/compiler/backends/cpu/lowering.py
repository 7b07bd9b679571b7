"""The CPU backend: each layer becomes a call to a native kernel, so TVM generates no code.

TVM provides the graph, the virtual machine and the paged KV cache.
"""

from __future__ import annotations

__all__ = ("lower_to_cpu",)

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from tvm.relax.frontend import nn

from aiomlc.compiler.backends.cpu.column_layers import COLUMN_LAYERS
from aiomlc.compiler.backends.cpu.experts import CpuMoE
from aiomlc.compiler.backends.cpu.layers import LAYERS, CpuAttention, CpuEmbedding, CpuLinear
from aiomlc.compiler.backends.cpu.packed import (
    PACKED_LAYERS,
    CpuAlibiAttention,
    CpuBiasedAttention,
    CpuDisentangledAttention,
    CpuPackedAttention,
)
from aiomlc.compiler.backends.cpu.shard_layers import SHARD_LAYERS
from aiomlc.compiler.backends.cpu.slot_layers import SLOT_LAYERS
from aiomlc.compiler.backends.cpu.stream_layers import STREAM_LAYERS
from aiomlc.compiler.kv_cache import KVCache
from aiomlc.compiler.quantization import Quantization
from aiomlc.models.graph.any_encoder import AnyEncoder
from aiomlc.models.graph.audio import AudioTower
from aiomlc.models.graph.block_encoder import BlockEncoder
from aiomlc.models.graph.cached_layers import CacheAttention
from aiomlc.models.graph.decoder import Decoder
from aiomlc.models.graph.encoder import DisentangledEncoder, Encoder
from aiomlc.models.graph.layers import Embedding, Linear
from aiomlc.models.graph.module import Mutator
from aiomlc.models.graph.moe import MoE
from aiomlc.models.graph.packed import (
    AlibiAttention,
    BiasedAttention,
    DisentangledAttention,
    PackedAttention,
)
from aiomlc.models.graph.speech import SpeechModel
from aiomlc.models.graph.vision import VisionTower
from aiomlc.models.parameters.packed_layout import Layout

Graph = TypeVar(
    "Graph",
    Decoder,
    Encoder,
    DisentangledEncoder,
    BlockEncoder,
    VisionTower,
    AudioTower,
    SpeechModel,
    AnyEncoder,
)

#: Replacements of the layers without a matrix.
_REPLACEMENTS: Mapping[type, Callable[[Any], nn.Module]] = {
    **LAYERS,
    **COLUMN_LAYERS,
    **STREAM_LAYERS,
    **SHARD_LAYERS,
    **SLOT_LAYERS,
    **PACKED_LAYERS,
    MoE: CpuMoE,
}


class _Lowering(Mutator):
    def __init__(self, quantization: Quantization, cache: KVCache | None) -> None:
        super().__init__()
        self.quantization = quantization
        self.cache = cache
        self._rounds = quantization.kv_dtype == "bfloat16"  # Whether attention multiplies bf16.

    def visit_module(self, name: str, node: nn.Module) -> nn.Module:
        match node:
            case Linear():
                matrix_format = "f32" if node.keep_float32 else self.quantization.matrix_format
                layout = self._layout(name, matrix_format, node.outputs)
                return CpuLinear(node, layout, is_ordered=name in self.quantization.ordered)
            case Embedding():
                matrix_format = "f32" if node.keep_float32 else self.quantization.matrix_format
                return CpuEmbedding(node, self._layout(name, matrix_format, node.vocab_size))
            case CacheAttention():
                return self._attention(node)
            case PackedAttention():
                return CpuPackedAttention(node, rounds=self._rounds)
            case BiasedAttention():
                return CpuBiasedAttention(node, rounds=self._rounds)
            case AlibiAttention():
                return CpuAlibiAttention(node, rounds=self._rounds)
            case DisentangledAttention():
                return CpuDisentangledAttention(node, rounds=self._rounds)
            case _:
                pass

        replacement = _REPLACEMENTS.get(type(node))
        return super().visit_module(name, node) if replacement is None else replacement(node)

    def _layout(self, name: str, matrix_format: str, rows: int) -> Layout:
        return self.quantization.layouts.get(name, ((matrix_format, rows),))

    def _attention(self, layer: CacheAttention) -> nn.Module:
        if self.cache is not None and self.cache.is_converted:
            return CpuAttention(layer, f"kv_{self.cache.dtype}_attention")

        return layer if layer.is_plain else CpuAttention(layer, "kv_layer_attention")


def lower_to_cpu(graph: Graph, quantization: Quantization, cache: KVCache | None = None) -> Graph:
    """Return the graph with kernel calls as layers, and packed bytes as matrices."""
    lowered: Graph = _Lowering(quantization, cache).visit("", graph)
    return lowered
