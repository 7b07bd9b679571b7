"""Gemma 3n: parallel residual streams, embeddings for each layer, sparse gates, and keys that
several layers share.

Only the text decoder of a multimodal model is loaded: requests cannot contain images or audio.
"""

from __future__ import annotations

__all__ = ("gemma3n_traits", "parse", "parse_text")

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from aiomlc.models.config.decoder import DecoderConfig, PerLayerEmbedding
from aiomlc.models.config.decoder_fields import ConfigRules, DecoderTraits, parse_decoder
from aiomlc.models.config.fields import Fields
from aiomlc.models.config.layers import AttentionConfig, LayerConfig, MlpConfig, StreamsConfig
from aiomlc.models.config.rope_fields import parse_rope
from aiomlc.models.config.sliding_window import sliding_layers
from aiomlc.models.families.layer_types import shared_sources

_INTERVAL: Final = 5
_SPARSE_LAYERS: Final = 10  # Of models with more layers, unless the config has a pattern.
_SPARSITY: Final = 0.95
_THETAS: Final = {"full_attention": 1_000_000.0, "sliding_attention": 10_000.0}
# The defaults of transformers, on which configs may rely.
_DEFAULTS: Final[Mapping[str, object]] = {
    "vocab_size": 262_400,
    "hidden_size": 2048,
    "intermediate_size": 16_384,
    "num_hidden_layers": 35,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "max_position_embeddings": 32_768,
    "sliding_window": 512,
    "vocab_size_per_layer_input": 262_144,
    "hidden_size_per_layer_input": 256,
    "num_kv_shared_layers": 15,
    "final_logit_softcapping": 30.0,
}


def parse(fields: Fields) -> DecoderConfig:
    """Read a config of model type `gemma3n`, which has the decoder's fields in `text_config`."""
    tied = fields.boolean("tie_word_embeddings", True)
    text = fields.flattened("text_config").replaced(tie_word_embeddings=tied)
    return _parse(text, "gemma3n")


def parse_text(fields: Fields) -> DecoderConfig:
    """Read a config of model type `gemma3n_text`."""
    return _parse(fields, "gemma3n_text")


def gemma3n_traits(fields: Fields) -> DecoderTraits:
    """Return the traits that Gemma 3n and 4 share.

    Raises:
        ModelLoadError: If the config specifies a variant that is not supported.
    """
    # Gemma 1 means the approximation by "gelu"; here transformers computes the exact function.
    fields.choice("hidden_activation", ("gelu_pytorch_tanh",), "gelu_pytorch_tanh")
    bias = fields.boolean("attention_bias", False)
    return DecoderTraits(
        activation="gelu_tanh",
        norm_placement="sandwich",
        qk_norm="per_head",
        qkv_bias=bias,
        output_bias=bias,
    )


def _parse(fields: Fields, model_type: str) -> DecoderConfig:
    fields = fields.with_defaults(**_DEFAULTS)
    fields.require_false("use_bidirectional_attention")
    count = fields.integer("num_hidden_layers")
    widths, sparsities = _widths(fields, count), _sparsities(fields, count)
    fields = fields.replaced(intermediate_size=widths[0])
    ropes = {kind: _rope_fields(fields, kind) for kind in _THETAS}
    rules = ConfigRules(
        tie_word_embeddings=True, hf_window="interleaved", full_attention_interval=_INTERVAL
    )
    config = parse_decoder(ropes["full_attention"], model_type, gemma3n_traits(fields), rules)
    config = config.with_attention(scale=1.0, value_norm=True)
    slides = sliding_layers(fields, count, _INTERVAL)
    local = parse_rope(
        ropes["sliding_attention"],
        head_dim=config.cache_shape.head_dim,
        context=config.context_window_size,
    )
    config = config.with_rope(local, slides)
    size = fields.integer("hidden_size_per_layer_input", minimum=1)
    streams = _streams(fields)
    sources = shared_sources(fields, slides)
    return replace(
        config,
        layers=tuple(
            replace(
                _with_source(layer, source),
                feed_forward=_mlp(layer, width, sparsity),
                embedding_size=size,
                streams=streams,
            )
            for layer, source, width, sparsity in zip(
                config.layers, sources, widths, sparsities, strict=True
            )
        ),
        embedding_scale=math.sqrt(config.hidden_size),
        final_logit_softcapping=fields.optional_number("final_logit_softcapping", 30.0),
        per_layer_embedding=PerLayerEmbedding(
            vocab_size=fields.integer("vocab_size_per_layer_input"), size=size
        ),
    )


def _rope_fields(fields: Fields, kind: str) -> Fields:
    """Return the fields of a model whose layers are all of one kind."""
    is_full = kind == "full_attention"
    old = "rope_theta" if is_full else "rope_local_base_freq"
    theta = fields.number(old, _THETAS[kind])
    if kind in fields.nested("rope_parameters"):
        own = fields.narrowed("rope_parameters", kind)
    else:
        own = fields.without("rope_parameters")
    own = own if is_full else own.without("rope_scaling")
    return own.replaced(rope_theta=theta)


def _widths(fields: Fields, count: int) -> list[int]:
    """Return the intermediate size of each layer, which may be one for all."""
    name = "intermediate_size"
    if not fields.is_list(name):
        return [fields.integer(name)] * count

    widths = fields.integers(name)
    if len(widths) != count:
        raise fields.error(name, f"must have one entry per layer ({count}), got {len(widths)}")

    return [fields.replaced(intermediate_size=width).integer(name) for width in widths]


def _sparsities(fields: Fields, count: int) -> list[float]:
    """Return the fraction of the gates of each layer that is cut off."""
    name = "activation_sparsity_pattern"
    if name not in fields:
        sparse = _SPARSE_LAYERS if count > _SPARSE_LAYERS else 0
        return [_SPARSITY] * sparse + [0.0] * (count - sparse)

    values = fields.fractions(name)
    if len(values) != count:
        raise fields.error(name, f"must have one entry per layer ({count}), got {len(values)}")

    return values


def _streams(fields: Fields) -> StreamsConfig:
    count = fields.integer("altup_num_inputs", 4)
    active = fields.integer("altup_active_idx", 0)
    if active >= count:
        problem = f"must be < altup_num_inputs ({count}), got {active}"
        raise fields.error("altup_active_idx", problem)

    return StreamsConfig(
        count=count,
        active=active,
        output_scale=fields.boolean("altup_correct_scale", True),
        laurel_rank=fields.integer("laurel_rank", 64),
    )


def _with_source(layer: LayerConfig, source: int | None) -> LayerConfig:
    assert isinstance(layer.mixer, AttentionConfig)
    return replace(layer, mixer=replace(layer.mixer, kv_source=source))


def _mlp(layer: LayerConfig, width: int, sparsity: float) -> MlpConfig:
    assert isinstance(layer.feed_forward, MlpConfig)
    return replace(layer.feed_forward, intermediate_size=width, sparsity=sparsity)
