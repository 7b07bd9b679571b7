"""A decoder's parameters by name, and the tensors of a Hugging Face directory they come from."""

from __future__ import annotations

__all__ = ("decoder_parameters",)

from collections.abc import Iterator
from dataclasses import replace

from aiomlc.models.config.decoder import DecoderConfig
from aiomlc.models.parameters.moe import expert_parameters
from aiomlc.models.parameters.parameter import Parameter, RowOrder
from aiomlc.models.parameters.tensor_names import hf_name, mlc_name, mlc_parts


def decoder_parameters(config: DecoderConfig) -> tuple[Parameter, ...]:
    """Every parameter of a decoder, by the graph's names (a matrix without its `.weight`)."""
    return tuple(_renamed(parameter, config.model_type) for parameter in _parameters(config))


def _renamed(parameter: Parameter, model_type: str) -> Parameter:
    sources = tuple(hf_name(model_type, source) for source in parameter.sources)
    return replace(
        parameter,
        sources=sources,
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
        if config.head_bias:
            yield _vector("lm_head.bias", config.vocab_size)


def _layer(at: str, config: DecoderConfig, layer: int) -> Iterator[Parameter]:
    if config.norms != "behind":
        yield from _norm(f"{at}.input_layernorm", config)
    yield from _attention(f"{at}.self_attn", config)
    if config.norms != "shared":
        yield from _norm(f"{at}.post_attention_layernorm", config)
    if config.norms == "around":
        yield from _norm(f"{at}.pre_feedforward_layernorm", config)
    if config.experts is not None and config.experts.is_sparse(layer):
        yield from expert_parameters(f"{at}.mlp", config.experts, config.hidden_size)
    else:
        yield from _mlp(f"{at}.mlp", config)
    if config.norms in ("behind", "around"):
        yield from _norm(f"{at}.post_feedforward_layernorm", config)


def _attention(at: str, config: DecoderConfig) -> Iterator[Parameter]:
    queries = config.num_attention_heads * config.head_dim
    fused = queries + 2 * config.num_key_value_heads * config.head_dim
    order = _qkv_order(config)
    is_one = config.qkv_name in config.hf_fused
    parts = (config.qkv_name,) if is_one else ("q_proj", "k_proj", "v_proj")
    qkv = _matrix(f"{at}.{config.qkv_name}", (fused, config.hidden_size), at, parts)
    yield replace(qkv, order=order)
    if config.qkv_bias:
        sources = tuple(f"{at}.{part}.bias" for part in parts)
        yield Parameter(f"{at}.{config.qkv_name}.bias", "vector", (fused,), sources, order=order)
    if config.qk_norm:
        for part, heads in (("q", config.num_attention_heads), ("k", config.num_key_value_heads)):
            size = config.head_dim * (heads if config.qk_norm_full_width else 1)
            yield _vector(f"{at}.{part}_norm.weight", size, config.norm_weight_offset)
    yield _matrix(f"{at}.o_proj", (config.hidden_size, queries))
    if config.output_bias:
        yield _vector(f"{at}.o_proj.bias", config.hidden_size)


def _qkv_order(config: DecoderConfig) -> RowOrder | None:
    heads, size = config.num_attention_heads, config.head_dim
    match config.hf_qkv_layout:
        case "parts":
            return None
        case "heads":
            return 1, 3, heads, size
        case "pairs":
            return heads + config.num_key_value_heads, 2, size // 2, 1


def _mlp(at: str, config: DecoderConfig) -> Iterator[Parameter]:
    hidden, inner = config.hidden_size, config.intermediate_size
    if config.gated:
        is_one = "gate_up_proj" in config.hf_fused
        parts = ("gate_up_proj",) if is_one else ("gate_proj", "up_proj")
        yield _matrix(f"{at}.gate_up_proj", (2 * inner, hidden), at, parts)
        if config.mlp_bias:
            sources = tuple(f"{at}.{part}.bias" for part in parts)
            yield Parameter(f"{at}.gate_up_proj.bias", "vector", (2 * inner,), sources)
    else:
        yield _matrix(f"{at}.up_proj", (inner, hidden))
        if config.mlp_bias:
            yield _vector(f"{at}.up_proj.bias", inner)
    yield _matrix(f"{at}.down_proj", (hidden, inner))
    if config.mlp_bias:
        yield _vector(f"{at}.down_proj.bias", hidden)


def _norm(name: str, config: DecoderConfig) -> Iterator[Parameter]:
    yield _vector(f"{name}.weight", config.hidden_size, config.norm_weight_offset)
    if config.norm_kind == "layer":
        yield _vector(f"{name}.bias", config.hidden_size)


def _matrix(
    name: str, shape: tuple[int, int], at: str = "", parts: tuple[str, ...] = ()
) -> Parameter:
    sources = tuple(f"{at}.{part}.weight" for part in parts) or (f"{name}.weight",)
    return Parameter(name, "matrix", shape, sources)


def _vector(name: str, size: int, added: float = 0.0) -> Parameter:
    return Parameter(name, "vector", (size,), (name,), added=added)
