"""The parameters of a decoder, and the Hugging Face tensors that they come from."""

from __future__ import annotations

__all__ = ("decoder_parameters",)

from collections.abc import Iterator
from dataclasses import replace

from aiomlc.models.config.checkpoint import HFQKVLayout
from aiomlc.models.config.decoder import DecoderConfig
from aiomlc.models.config.layers import (
    AttentionConfig,
    DenseAndExpertsConfig,
    ExpertsConfig,
    FeedForwardConfig,
    GatedDeltaConfig,
    LayerConfig,
    MixerConfig,
    ShortConvConfig,
    StreamsConfig,
)
from aiomlc.models.parameters.moe import expert_parameters
from aiomlc.models.parameters.parameter import Parameter, RowOrder, Split
from aiomlc.models.parameters.tensor_names import fused_name, hf_name, mlc_name, mlc_parts


def decoder_parameters(config: DecoderConfig) -> tuple[Parameter, ...]:
    """Return every parameter of a decoder, under the graph's names (a matrix without `.weight`)."""
    return tuple(
        _with_external_names(replace(parameter, shards=config.num_shards), config.model_type)
        for parameter in _parameters(config)
    )


def _with_external_names(parameter: Parameter, model_type: str) -> Parameter:
    return replace(
        parameter,
        sources=tuple(hf_name(model_type, source) for source in parameter.sources),
        fused_source=fused_name(model_type, parameter.fused_source),
        mlc_name=mlc_name(model_type, parameter.mlc_name or parameter.name),
        mlc_parts=mlc_parts(model_type, parameter.name),
    )


def _parameters(config: DecoderConfig) -> Iterator[Parameter]:
    table = (config.vocab_size, config.hidden_size)
    yield _matrix("model.embed_tokens", table)
    yield from _layer_embeddings(config)
    for index, layer in enumerate(config.layers):
        yield from _layer(f"model.layers.{index}", config, layer)
    yield from _norm("model.norm", config)
    if not config.reuses_embedding:
        yield _head(config, table)
        if config.head_bias:
            yield replace(_vector("lm_head.bias", config.vocab_size), split=_head_split(config))


def _head(config: DecoderConfig, table: tuple[int, int]) -> Parameter:
    head = replace(_matrix("lm_head", table), split=_head_split(config))
    if not config.tie_word_embeddings:
        return head

    embedding = "model.embed_tokens"
    return replace(head, sources=(f"{embedding}.weight",), mlc_name=embedding)


def _head_split(config: DecoderConfig) -> Split | None:
    return Split("rows", (config.vocab_size,)) if config.has_divided_head else None


def _layer_embeddings(config: DecoderConfig) -> Iterator[Parameter]:
    if (plan := config.per_layer_embedding) is not None:
        size = config.num_hidden_layers * plan.size
        yield _matrix("model.embed_tokens_per_layer", (plan.vocab_size, size))
        yield _matrix("model.per_layer_model_projection", (size, config.hidden_size))
        yield _vector("model.per_layer_projection_norm.weight", plan.size)
    square = (config.hidden_size, config.hidden_size)
    for name in ("altup_projections", "altup_unembed_projections"):
        for index in range(config.num_streams - 1):
            source = f"model.{name}.{index}.weight"
            yield Parameter(f"model.{name}.matrices.{index}", "matrix", square, (source,))


def _layer(prefix: str, config: DecoderConfig, layer: LayerConfig) -> Iterator[Parameter]:
    for part in layer.parts:
        name = f"{prefix}.{part}"
        match part:
            case layer.mixer.part:
                yield from _mixer(name, config, layer.mixer)
            case "mlp":
                yield from _feed_forward(name, config, layer.feed_forward)
            case "layer_scalar":
                yield _vector(name, 1)
            case "per_layer_input_gate":
                yield _matrix(name, (layer.embedding_size, config.hidden_size))
            case "per_layer_projection":
                yield _matrix(name, (config.hidden_size, layer.embedding_size))
            case "altup" | "laurel":
                yield from _stream_part(name, config.hidden_size, layer)
            case _:
                yield from _norm(name, config)


def _stream_part(name: str, hidden: int, layer: LayerConfig) -> Iterator[Parameter]:
    streams = layer.streams
    assert streams is not None
    if name.endswith(".altup"):
        yield from _altup(name, hidden, streams)
        return

    yield _matrix(f"{name}.linear_left", (streams.laurel_rank, hidden))
    yield _matrix(f"{name}.linear_right", (hidden, streams.laurel_rank))
    yield _vector(f"{name}.post_laurel_norm.weight", hidden)


def _altup(prefix: str, hidden: int, streams: StreamsConfig) -> Iterator[Parameter]:
    count = streams.count
    if streams.output_scale:
        yield _vector(f"{prefix}.correct_output_scale", hidden)
    for name, shape in (
        ("correction_coefs", (count, count)),
        ("prediction_coefs", (count * count, count)),
        ("modality_router", (count, hidden)),
    ):
        # Rounding would scale whole streams.
        yield replace(_matrix(f"{prefix}.{name}", shape), keep_float32=True)
    yield _vector(f"{prefix}.router_norm.weight", hidden)


def _mixer(prefix: str, config: DecoderConfig, mixer: MixerConfig) -> Iterator[Parameter]:
    match mixer:
        case AttentionConfig():
            yield from _attention(prefix, config, mixer)
        case ShortConvConfig():
            yield from _short_conv(prefix, config.hidden_size, mixer)
        case GatedDeltaConfig():
            yield from _gated_delta(prefix, config, mixer)


def _short_conv(prefix: str, hidden: int, conv: ShortConvConfig) -> Iterator[Parameter]:
    conv_name = f"{prefix}.conv.weight"
    for name, parameter in (
        ("in_proj", _matrix(f"{prefix}.in_proj", (3 * hidden, hidden))),
        ("conv", _conv_weight(conv_name, conv_name, conv.width, hidden)),
        ("out_proj", _matrix(f"{prefix}.out_proj", (hidden, hidden))),
    ):
        yield parameter
        if conv.bias:
            rows = hidden if name == "conv" else parameter.shape[0]
            yield _vector(f"{prefix}.{name}.bias", rows)


def _gated_delta(prefix: str, config: DecoderConfig, net: GatedDeltaConfig) -> Iterator[Parameter]:
    hidden = config.hidden_size
    shared = net.num_value_heads // net.num_key_heads  # Value heads of a key head.
    values = shared * net.value_dim
    for name, parts, sizes in (
        ("in_proj_qkvz", ("in_proj_qkv", "in_proj_z"), (net.key_dim, net.key_dim, values, values)),
        ("in_proj_ba", ("in_proj_b", "in_proj_a"), (shared, shared)),
    ):
        is_fused = name in config.checkpoint.hf_fused
        order = RowOrder(1, net.num_key_heads, sizes)  # Of a fused tensor.
        shape = (net.num_key_heads * sum(sizes), hidden)
        matrix = _matrix(f"{prefix}.{name}", shape, prefix, (name,) if is_fused else parts)
        yield replace(
            matrix,
            row_order=order if is_fused else None,
            fused_source=f"{prefix}.{name}.weight",
            fused_row_order=order,
            # Rounding would change for how long a head remembers.
            keep_float32=name == "in_proj_ba",
        )
    conv, source = f"{prefix}.net.conv_weight", f"{prefix}.conv1d.weight"
    yield _conv_weight(conv, source, net.width, net.channels)
    for name, source, size in (
        ("A_log", "A_log", net.num_value_heads),
        ("dt_bias", "dt_bias", net.num_value_heads),
        ("norm_weight", "norm.weight", net.value_dim),
    ):
        yield Parameter(f"{prefix}.net.{name}", "vector", (size,), (f"{prefix}.{source}",))
    yield _matrix(f"{prefix}.out_proj", (hidden, net.num_values))


def _conv_weight(name: str, source: str, width: int, channels: int) -> Parameter:
    """Return the weights `[width, channels]` of a convolution that is stored as `[channels, 1,
    width]`."""
    order = RowOrder(1, channels, (1,) * width)
    size = (width * channels,)
    return Parameter(
        name,
        "vector",
        size,
        (source,),
        row_order=order,
        fused_source=source,  # One tensor with three axes, as those that are fused.
        fused_row_order=order,
    )


def _attention(
    prefix: str, config: DecoderConfig, attention: AttentionConfig
) -> Iterator[Parameter]:
    layout = config.checkpoint
    queries = attention.num_heads * attention.head_dim
    fused = attention.num_projected_heads * attention.head_dim
    row_order = _qkv_row_order(layout.hf_qkv_layout, attention)
    if attention.output_gate:  # A head's gate follows its query.
        row_order = RowOrder(1, attention.num_heads, (attention.head_dim,) * 2)
    is_fused = layout.qkv_name in layout.hf_fused
    parts = (layout.qkv_name,) if is_fused else _qkv_parts(attention)
    qkv = _matrix(f"{prefix}.{layout.qkv_name}", (fused, config.hidden_size), prefix, parts)
    split = _qkv_split(attention)
    yield replace(qkv, row_order=row_order, split=split)
    if attention.qkv_bias:
        name = f"{prefix}.{layout.qkv_name}.bias"
        sources = tuple(f"{prefix}.{part}.bias" for part in parts)
        yield Parameter(name, "vector", (fused,), sources, row_order=row_order, split=split)
    if attention.qk_norm != "none":
        for part, heads in (("q", attention.num_heads), ("k", attention.num_kv_heads)):
            if part == "k" and attention.kv_source is not None:
                continue

            size = attention.head_dim * (heads if attention.qk_norm == "full_width" else 1)
            yield _vector(f"{prefix}.{part}_norm.weight", size, layout.hf_norm_offset)
    yield _by_columns(_matrix(f"{prefix}.o_proj", (config.hidden_size, queries)))
    if attention.output_bias:
        yield _of_first(_vector(f"{prefix}.o_proj.bias", config.hidden_size))
    if attention.sink_scores:
        heads = attention.num_heads
        yield replace(_vector(f"{prefix}.sinks.weight", heads), split=Split("rows", (heads,)))


def _qkv_split(attention: AttentionConfig) -> Split:
    """Return the rows of queries, gates, keys and values; a shard has those of its heads."""
    queries = (attention.num_heads,) * (2 if attention.output_gate else 1)
    keys = (attention.num_kv_heads,) * (len(_qkv_parts(attention)) - 1)
    return Split("rows", tuple(heads * attention.head_dim for heads in (*queries, *keys)))


def _by_columns(matrix: Parameter) -> Parameter:
    return replace(matrix, split=Split("columns"))


def _of_first(vector: Parameter) -> Parameter:
    return replace(vector, split=Split("first"))


def _qkv_parts(attention: AttentionConfig) -> tuple[str, ...]:
    if attention.kv_source is not None:
        return ("q_proj",)

    return ("q_proj", "k_proj") if attention.values_are_keys else ("q_proj", "k_proj", "v_proj")


def _qkv_row_order(layout: HFQKVLayout, attention: AttentionConfig) -> RowOrder | None:
    heads, size = attention.num_heads, attention.head_dim
    match layout:
        case "concatenated":
            return None
        case "per_head":
            return RowOrder(1, heads, (size,) * 3)
        case "interleaved_rope":
            return RowOrder(heads + attention.num_kv_heads, size // 2, (1, 1))


def _feed_forward(
    prefix: str, config: DecoderConfig, layer: FeedForwardConfig
) -> Iterator[Parameter]:
    hidden = config.hidden_size
    if isinstance(layer, ExpertsConfig):
        yield from expert_parameters(prefix, layer, hidden, config.checkpoint.hf_experts_layout)
        return

    if isinstance(layer, DenseAndExpertsConfig):
        yield from _feed_forward(prefix, config, layer.dense)
        yield from _feed_forward(prefix, config, layer.experts)
        for norm in ("post_dense", "router", "pre_experts", "post_experts"):
            yield _vector(f"{prefix}.{norm}_norm.weight", hidden)
        return

    inner = layer.intermediate_size
    if layer.gated:
        is_fused = "gate_up_proj" in config.checkpoint.hf_fused
        parts = ("gate_up_proj",) if is_fused else ("gate_proj", "up_proj")
        split = Split("rows", (inner, inner))
        gate_up = _matrix(f"{prefix}.gate_up_proj", (2 * inner, hidden), prefix, parts)
        yield replace(gate_up, split=split)
        if layer.bias:
            sources = tuple(f"{prefix}.{part}.bias" for part in parts)
            name = f"{prefix}.gate_up_proj.bias"
            yield Parameter(name, "vector", (2 * inner,), sources, split=split)
    else:
        split = Split("rows", (inner,))
        yield replace(_matrix(f"{prefix}.up_proj", (inner, hidden)), split=split)
        if layer.bias:
            yield replace(_vector(f"{prefix}.up_proj.bias", inner), split=split)
    yield _by_columns(_matrix(f"{prefix}.down_proj", (hidden, inner)))
    if layer.bias:
        yield _of_first(_vector(f"{prefix}.down_proj.bias", hidden))


def _norm(name: str, config: DecoderConfig) -> Iterator[Parameter]:
    yield _vector(f"{name}.weight", config.hidden_size, config.checkpoint.hf_norm_offset)
    if config.norm_kind == "layer":
        yield _vector(f"{name}.bias", config.hidden_size)


def _matrix(
    name: str, shape: tuple[int, int], prefix: str = "", parts: tuple[str, ...] = ()
) -> Parameter:
    sources = tuple(f"{prefix}.{part}.weight" for part in parts) or (f"{name}.weight",)
    return Parameter(name, "matrix", shape, sources)


def _vector(name: str, size: int, weight_offset: float = 0.0) -> Parameter:
    return Parameter(name, "vector", (size,), (name,), weight_offset=weight_offset)
