"""The memory that the CPU kernels need per token."""

from __future__ import annotations

__all__ = ("token_bytes",)

from collections.abc import Mapping, Sequence

from aiomlc.compiler.backends.cpu.fusion import fuses_feed_forward
from aiomlc.compiler.interface import TokenBytes
from aiomlc.compiler.kv_cache import KVCache
from aiomlc.compiler.quantization import Quantization
from aiomlc.models import DecoderConfig, ExpertsConfig, MlpConfig, Parameter
from aiomlc.models.config.layers import (
    AttentionConfig,
    DenseAndExpertsConfig,
    FeedForwardConfig,
    GatedDeltaConfig,
    LayerConfig,
    ShortConvConfig,
)
from aiomlc.models.parameters.matrix_format import MatrixFormat
from aiomlc.models.parameters.packed_layout import Layout


def token_bytes(
    config: DecoderConfig,
    parameters: Sequence[Parameter],
    quantization: Quantization,
    cache: KVCache,
) -> TokenBytes:
    """Return the memory that a decoder needs per token, beside its KV cache."""
    shape = config.cache_shape
    row = cache.row_bytes(shape.head_dim)
    queries, keys = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
    # A cache of another dtype additionally needs the rotated heads in the compute dtype.
    rotated = (queries + 2 * keys) * cache.compute_bytes if cache.is_converted else 0
    return TokenBytes(
        # Queries, keys, values and outputs, and two partial sums per head.
        chunk=2 * (shape.num_heads + shape.num_kv_heads) * row + 8 * shape.num_heads,
        # Four hidden states, what the largest mixer reads and writes, and embeddings for layers:
        # the sum, and its two parts.
        step=4 * (4 * config.hidden_size + max(map(_mixer_floats, config.layers)))
        + 16 * (config.embedded_size - config.hidden_size)
        # Streams before and after a layer, and their prediction.
        + 12 * config.hidden_size * (config.num_streams if config.num_streams > 1 else 0)
        + _feed_forward_bytes(config, parameters, quantization)
        + rotated,
    )


def _mixer_floats(layer: LayerConfig) -> int:
    """Return the numbers of a token between the two matrices of a layer's mixer."""
    match layer.mixer:
        case AttentionConfig() as mixer:
            heads = 2 * (mixer.num_heads + mixer.num_kv_heads)
            # With a gate, the projection is copied without it; other layers may read it later.
            heads += heads if mixer.output_gate or mixer.value_norm else 0
            return heads * mixer.head_dim
        case ShortConvConfig() as mixer:
            return 4 * mixer.channels
        case GatedDeltaConfig() as mixer:
            return mixer.channels + 2 * mixer.num_values + 2 * mixer.num_value_heads


def _feed_forward_bytes(
    config: DecoderConfig, parameters: Sequence[Parameter], quantization: Quantization
) -> int:
    """Return the peak bytes of a token's feed-forward layer."""
    layouts = {
        parameter.name: quantization.layout_of(parameter)
        for parameter in parameters
        if ".mlp." in parameter.name and not parameter.keep_float32
    }
    element = max(_element_bytes(name) for layout in layouts.values() for name, _ in layout)
    is_rms = config.norm_kind == "rms"

    def layer_bytes(layer: FeedForwardConfig, *, has_pre_norm: bool) -> int:
        match layer:
            case ExpertsConfig():
                return _experts_bytes(layer, config.hidden_size, element)
            case MlpConfig():
                return _mlp_bytes(layer, layouts, has_pre_norm)
            case DenseAndExpertsConfig(dense=dense, experts=experts):
                # One after the other, beside four hidden states.
                sizes = [layer_bytes(part, has_pre_norm=False) for part in (dense, experts)]
                return 16 * config.hidden_size + max(sizes)

    return max(
        layer_bytes(layer.feed_forward, has_pre_norm=is_rms and layer.norm_placement == "pre")
        for layer in set(config.layers)
    )


def _experts_bytes(experts: ExpertsConfig, hidden: int, element: int) -> int:
    expert_bytes = element * (hidden + experts.intermediate_size)
    routing = 4 * experts.count + element * hidden
    return 12 * experts.shared_size + routing + experts.per_token * expert_bytes


def _element_bytes(matrix_format: str) -> int:
    """Return an upper bound of the bytes of an activation, as the matrix's kernel reads it."""
    match MatrixFormat.parse(matrix_format).family:
        case "f32" | "f16":
            return 4
        case "i8channel" | "i4progressive" | "i8rotated":
            return 6  # A row is complete in float32 before it is rounded.
        case "q4" | "grouped" | "bf16":
            return 2


def _mlp_bytes(mlp: MlpConfig, layouts: Mapping[str, Layout], has_pre_norm: bool) -> int:
    inner = mlp.intermediate_size
    if not mlp.gated:
        return 8 * inner

    gate_ups = [name for name in layouts if name.endswith(".mlp.gate_up_proj")]
    downs = [layouts[name.replace("gate_up_proj", "down_proj")] for name in gate_ups]
    fused = all(
        fuses_feed_forward(layouts[name], down) for name, down in zip(gate_ups, downs, strict=True)
    )
    if mlp.sparsity:
        return 20 * inner

    if mlp.bias or not (has_pre_norm and fused):
        return 12 * inner

    # The fused kernel stores only what the next matrix reads.
    return inner * max((_element_bytes(name) for down in downs for name, _ in down), default=2)
