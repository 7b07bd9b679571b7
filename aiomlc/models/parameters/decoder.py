"""The parameters of a decoder, and the Hugging Face tensors that they come from."""

from __future__ import annotations

__all__ = ("decoder_parameters",)

from collections.abc import Iterator
from dataclasses import replace

from aiomlc.models.config.decoder import DecoderConfig
from aiomlc.models.parameters.moe import expert_parameters
from aiomlc.models.parameters.parameter import Parameter, RowOrder
from aiomlc.models.parameters.tensor_names import hf_name, mlc_name, mlc_parts


def decoder_parameters(config: DecoderConfig) -> tuple[Parameter, ...]:
    """Return every parameter of a decoder, under the graph's names (a matrix without `.weight`)."""
    return tuple(
        _with_external_names(parameter, config.model_type) for parameter in _parameters(config)
    )


def _with_external_names(parameter: Parameter, model_type: str) -> Parameter:
    return replace(
        parameter,
        sources=tuple(hf_name(model_type, source) for source in parameter.sources),
        mlc_name=mlc_name(model_type, parameter.name),
        mlc_parts=mlc_parts(model_type, parameter.name),
    )


def _parameters(config: DecoderConfig) -> Iterator[Parameter]:
    table = (config.vocab_size, config.hidden_size)
    yield _matrix("model.embed_tokens", table)
    for layer in range(config.num_hidden_layers):
        yield from _layer(f"model.layers.{layer}", config, layer)
    yield from _norm("model.norm", config)
    if not config.tie_word_embeddings:
        yield _matrix("lm_head", table)
        if config.traits.head_bias:
            yield _vector("lm_head.bias", config.vocab_size)


def _layer(prefix: str, config: DecoderConfig, layer: int) -> Iterator[Parameter]:
    placement = config.traits.norm_placement
    if placement != "post":
        yield from _norm(f"{prefix}.input_layernorm", config)
    yield from _attention(f"{prefix}.self_attn", config)
    if placement != "parallel_shared":
        yield from _norm(f"{prefix}.post_attention_layernorm", config)
    if placement == "sandwich":
        yield from _norm(f"{prefix}.pre_feedforward_layernorm", config)
    if config.experts is not None and config.experts.is_sparse(layer):
        yield from expert_parameters(f"{prefix}.mlp", config.experts, config.hidden_size)
    else:
        yield from _mlp(f"{prefix}.mlp", config)
    if placement in ("post", "sandwich"):
        yield from _norm(f"{prefix}.post_feedforward_layernorm", config)


def _attention(prefix: str, config: DecoderConfig) -> Iterator[Parameter]:
    traits = config.traits
    queries = config.num_attention_heads * config.head_dim
    fused = queries + 2 * config.num_key_value_heads * config.head_dim
    row_order = _qkv_row_order(config)
    is_fused = traits.qkv_name in traits.hf_fused
    parts = (traits.qkv_name,) if is_fused else ("q_proj", "k_proj", "v_proj")
    qkv = _matrix(f"{prefix}.{traits.qkv_name}", (fused, config.hidden_size), prefix, parts)
    yield replace(qkv, row_order=row_order)
    if traits.qkv_bias:
        name = f"{prefix}.{traits.qkv_name}.bias"
        sources = tuple(f"{prefix}.{part}.bias" for part in parts)
        yield Parameter(name, "vector", (fused,), sources, row_order=row_order)
    if traits.qk_norm:
        for part, heads in (("q", config.num_attention_heads), ("k", config.num_key_value_heads)):
            size = config.head_dim * (heads if traits.qk_norm_full_width else 1)
            yield _vector(f"{prefix}.{part}_norm.weight", size, config.norm_weight_offset)
    yield _matrix(f"{prefix}.o_proj", (config.hidden_size, queries))
    if traits.output_bias:
        yield _vector(f"{prefix}.o_proj.bias", config.hidden_size)


def _qkv_row_order(config: DecoderConfig) -> RowOrder | None:
    heads, size = config.num_attention_heads, config.head_dim
    match config.traits.hf_qkv_layout:
        case "concatenated":
            return None
        case "per_head":
            return 1, 3, heads, size
        case "interleaved_rope":
            return heads + config.num_key_value_heads, 2, size // 2, 1


def _mlp(prefix: str, config: DecoderConfig) -> Iterator[Parameter]:
    traits = config.traits
    hidden, inner = config.hidden_size, config.intermediate_size
    if traits.gated:
        is_fused = "gate_up_proj" in traits.hf_fused
        parts = ("gate_up_proj",) if is_fused else ("gate_proj", "up_proj")
        yield _matrix(f"{prefix}.gate_up_proj", (2 * inner, hidden), prefix, parts)
        if traits.mlp_bias:
            sources = tuple(f"{prefix}.{part}.bias" for part in parts)
            yield Parameter(f"{prefix}.gate_up_proj.bias", "vector", (2 * inner,), sources)
    else:
        yield _matrix(f"{prefix}.up_proj", (inner, hidden))
        if traits.mlp_bias:
            yield _vector(f"{prefix}.up_proj.bias", inner)
    yield _matrix(f"{prefix}.down_proj", (hidden, inner))
    if traits.mlp_bias:
        yield _vector(f"{prefix}.down_proj.bias", hidden)


def _norm(name: str, config: DecoderConfig) -> Iterator[Parameter]:
    yield _vector(f"{name}.weight", config.hidden_size, config.norm_weight_offset)
    if config.traits.norm_kind == "layer":
        yield _vector(f"{name}.bias", config.hidden_size)


def _matrix(
    name: str, shape: tuple[int, int], prefix: str = "", parts: tuple[str, ...] = ()
) -> Parameter:
    sources = tuple(f"{prefix}.{part}.weight" for part in parts) or (f"{name}.weight",)
    return Parameter(name, "matrix", shape, sources)


def _vector(name: str, size: int, weight_offset: float = 0.0) -> Parameter:
    return Parameter(name, "vector", (size,), (name,), weight_offset=weight_offset)
