"""Gemma 4: unequal heads in sliding and full layers, keys that several layers share, embeddings for
each layer in the small models, and an MLP beside experts in the mixture.

A multimodal model has a tower for images, except for 12B; audio is not supported. The positions of
an image see each other in the sliding layers of the large models.
"""

from __future__ import annotations

__all__ = ("parse", "parse_text", "parse_unified", "parse_unified_text", "parse_vision")

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from aiomlc.models.config.decoder import DecoderConfig, PerLayerEmbedding
from aiomlc.models.config.decoder_fields import ConfigRules, parse_decoder
from aiomlc.models.config.fields import Fields
from aiomlc.models.config.layers import (
    AttentionConfig,
    DenseAndExpertsConfig,
    LayerConfig,
    MlpConfig,
)
from aiomlc.models.config.sliding_window import sliding_layers
from aiomlc.models.config.tower import (
    LinearStep,
    PoolStep,
    ScaleStep,
    StandardizeStep,
    TowerNames,
    UnitNormStep,
)
from aiomlc.models.config.vision import VisionConfig
from aiomlc.models.families.gemma3n import gemma3n_traits
from aiomlc.models.families.layer_types import shared_sources
from aiomlc.models.families.moe_fields import parse_experts

_SLIDING: Final = "sliding_attention"
_FULL: Final = "full_attention"
_INTERVAL: Final = 6
_GLOBAL_HEAD_DIM: Final = 512
# The defaults of transformers, on which configs may rely.
_DEFAULTS: Final[Mapping[str, object]] = {
    "vocab_size": 262_144,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 30,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "max_position_embeddings": 131_072,
    "sliding_window": 512,
    "hidden_size_per_layer_input": 256,
    "vocab_size_per_layer_input": 262_144,
    "rope_parameters": {
        _SLIDING: {"rope_type": "default", "rope_theta": 10_000.0},
        _FULL: {
            "rope_type": "proportional",
            "partial_rotary_factor": 0.25,
            "rope_theta": 1_000_000.0,
        },
    },
}
_VISION_THETA: Final = 100.0
_VISION_DEFAULTS: Final[Mapping[str, object]] = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 16,
    "num_attention_heads": 12,
    "num_key_value_heads": 12,
    "head_dim": 64,
    "hidden_activation": "gelu_pytorch_tanh",
    "rms_norm_eps": 1e-6,
    "pooling_kernel_size": 3,
    "patch_size": 16,
    "position_embedding_size": 10_240,
}
_VISION_NAMES: Final = TowerNames(
    patch="vision_tower.patch_embedder.input_proj",
    positions="vision_tower.patch_embedder.position_embedding_table",
    layers="vision_tower.encoder.layers",
    attention_norm="input_layernorm",
    qkv=tuple(f"self_attn.{part}_proj.linear" for part in "qkv"),
    output="self_attn.o_proj.linear",
    mlp_norm="pre_feedforward_layernorm",
    up=("mlp.gate_proj.linear", "mlp.up_proj.linear"),
    down="mlp.down_proj.linear",
)
_UNIFIED_DEFAULTS: Final[Mapping[str, object]] = {
    **_DEFAULTS,
    "max_position_embeddings": 262_144,
    "sliding_window": 1024,
    "hidden_size_per_layer_input": 0,
}


def parse(fields: Fields) -> DecoderConfig:
    """Read a config of model type `gemma4`, which has the decoder's fields in `text_config`."""
    return _parse(_text_fields(fields), "gemma4", _DEFAULTS)


def parse_text(fields: Fields) -> DecoderConfig:
    """Read a config of model type `gemma4_text`."""
    return _parse(fields, "gemma4_text", _DEFAULTS)


def parse_vision(fields: Fields) -> VisionConfig | None:
    """Read the tower of a config of model type `gemma4`; None if it is not supported."""
    vision = fields.nested("vision_config").with_defaults(**_VISION_DEFAULTS)
    if vision.boolean("use_clipped_linears", False):
        return None  # The text decoder opens all the same.

    hidden, heads = vision.integer("hidden_size"), vision.integer("num_attention_heads")
    head_dim, side = vision.integer("head_dim"), vision.integer("patch_size")
    keys = vision.integer("num_key_value_heads")
    if keys != heads or head_dim % 4:
        problem = f"must be num_attention_heads ({heads}) with a head_dim of 4n, got {keys}"
        raise vision.error("num_key_value_heads", problem)

    vision.choice("hidden_activation", ("gelu_pytorch_tanh",))
    table, block = vision.integer("position_embedding_size"), vision.integer("pooling_kernel_size")
    eps, out = vision.number("rms_norm_eps"), _text_fields(fields).with_defaults(**_DEFAULTS)
    size = out.integer("hidden_size")
    name = "vision_tower."
    standardize = StandardizeStep(bias=f"{name}std_bias", scale=f"{name}std_scale", size=hidden)
    return VisionConfig(
        model_type="gemma4",
        image_size=side * table,
        patch_size=side,
        patch_inputs=3 * side * side,
        patch_bias=False,
        hidden_size=hidden,
        intermediate_size=vision.integer("intermediate_size"),
        num_hidden_layers=vision.integer("num_hidden_layers"),
        num_heads=heads,
        head_dim=head_dim,
        activation="gelu_tanh",
        gated=True,
        norm_kind="rms",
        norm_eps=eps,
        num_positions=2 * table,
        position_taps=2,
        rope_theta=vision.nested("rope_parameters").number("rope_theta", _VISION_THETA),
        qkv_bias=False,
        output_bias=False,
        mlp_bias=False,
        qk_norm="per_head",
        output_norms=True,
        value_norm=True,
        attention_scale=1.0,
        halves_heads=True,
        projector=(
            PoolStep(count=block * block),
            ScaleStep(factor=math.sqrt(hidden)),
            *(standardize,) * vision.boolean("standardize", False),
            UnitNormStep(size=hidden, eps=eps),
            LinearStep(
                source="embed_vision.embedding_projection", inputs=hidden, outputs=size, bias=False
            ),
        ),
        embedded_size=size,
        merge=block,
        names=_VISION_NAMES,
        prefixes=(("model.vision_tower.", name), ("model.embed_vision.", "embed_vision.")),
    )


def parse_unified(fields: Fields) -> DecoderConfig:
    """Read a config of model type `gemma4_unified`, with the decoder's fields in `text_config`."""
    return _parse(_text_fields(fields), "gemma4_unified", _UNIFIED_DEFAULTS)


def parse_unified_text(fields: Fields) -> DecoderConfig:
    """Read a config of model type `gemma4_unified_text`."""
    return _parse(fields, "gemma4_unified_text", _UNIFIED_DEFAULTS)


def _text_fields(fields: Fields) -> Fields:
    tied = fields.boolean("tie_word_embeddings", True)
    return fields.flattened("text_config").replaced(tie_word_embeddings=tied)


def _parse(fields: Fields, model_type: str, defaults: Mapping[str, object]) -> DecoderConfig:
    fields = fields.with_defaults(**defaults)
    if "rope_parameters" not in fields:  # Null means the defaults, too.
        fields = fields.replaced(rope_parameters=defaults["rope_parameters"])
    # The tokens of an image see each other with "vision", and all tokens do with "all".
    fields.choice("use_bidirectional_attention", ("vision",), "vision")
    slides = sliding_layers(fields, fields.integer("num_hidden_layers"), _INTERVAL)
    slides[-1] = False  # As in transformers, whatever the config says.
    sizes = _head_sizes(fields, slides)
    types = [_SLIDING if is_sliding else _FULL for is_sliding in slides]
    kinds = {kind: _parse_kind(fields, model_type, kind, sizes[kind]) for kind in set(types)}
    config = kinds[_FULL]
    layers = [kinds[kind].layers[0] for kind in types]
    size = fields.integer("hidden_size_per_layer_input", 0)
    vocab = fields.integer("vocab_size_per_layer_input") if size else 0
    shared = shared_sources(fields, slides)
    config = replace(
        config,
        layers=tuple(
            replace(_shared(layer, source, fields), embedding_size=size, output_scale=True)
            for layer, source in zip(layers, shared, strict=True)
        ),
        embedding_scale=math.sqrt(config.hidden_size),
        final_logit_softcapping=fields.optional_number("final_logit_softcapping", 0.0)
        if "final_logit_softcapping" in fields
        else 0.0,
        per_layer_embedding=PerLayerEmbedding(vocab_size=vocab, size=size) if size else None,
    )
    return _with_experts(config, fields)


def _head_sizes(fields: Fields, slides: Sequence[bool]) -> dict[str, dict[str, int]]:
    """Return `head_dim` and `num_key_value_heads` of both kinds of layers."""
    names = ("head_dim", "num_key_value_heads")
    plain = {name: fields.integer(name) for name in names}
    if "per_layer_config" not in fields:
        full = plain | {"head_dim": fields.integer("global_head_dim", _GLOBAL_HEAD_DIM)}
        if fields.boolean("attention_k_eq_v", False):
            default = plain["num_key_value_heads"]
            heads = fields.integer("num_global_key_value_heads", default)
            full["num_key_value_heads"] = heads
        return {_SLIDING: plain, _FULL: full}

    sizes: dict[str, dict[str, int]] = {}
    layers = fields.nested("per_layer_config")
    known = [str(layer) for layer in range(len(slides))]
    if unknown := [name for name in layers.names() if name not in known]:
        raise layers.error(unknown[0], f"must be a layer, from 0 to {len(slides) - 1}")

    for layer, is_sliding in enumerate(slides):
        own = layers.nested(str(layer))
        if unknown := [name for name in own.names() if name not in names]:
            raise own.error(unknown[0], "is not supported for single layers")

        size = {name: own.integer(name, plain[name]) for name in names}
        kind = _SLIDING if is_sliding else _FULL
        if sizes.setdefault(kind, size) != size:
            raise fields.error(
                "per_layer_config", f"must give all layers of {kind} the same heads, got {size}"
            )
    return {_SLIDING: plain} | sizes


def _parse_kind(
    fields: Fields, model_type: str, kind: str, sizes: Mapping[str, int]
) -> DecoderConfig:
    """Return a decoder whose layers are all of one kind."""
    settings = fields.nested("rope_parameters")
    if kind not in settings:
        raise fields.error("rope_parameters", f"must have settings of {kind}")

    rope = settings.nested(kind)
    is_proportional = rope.string("rope_type", "default") == "proportional"
    rules = ConfigRules(
        tie_word_embeddings=True,
        hf_window="interleaved",
        partial_rotary_factor=1.0 if is_proportional else None,
    )
    types = [kind] * fields.integer("num_hidden_layers")
    own = fields.replaced(layer_types=types, **sizes).narrowed("rope_parameters", kind)
    keys = kind == _FULL and fields.boolean("attention_k_eq_v", False)
    return parse_decoder(own, model_type, gemma3n_traits(fields), rules).with_attention(
        scale=1.0,
        value_norm=True,
        values_are_keys=keys,
        # In full layers, the mask of an image is causal.
        sees_whole_pieces=kind == _SLIDING and "use_bidirectional_attention" in fields,
    )


def _shared(layer: LayerConfig, source: int | None, fields: Fields) -> LayerConfig:
    """Return the layer as one that reads the keys and values of `source`, if it is one."""
    if source is None:
        return layer

    assert isinstance(layer.mixer, AttentionConfig)
    assert isinstance(layer.feed_forward, MlpConfig)
    wide = 2 if fields.boolean("use_double_wide_mlp", False) else 1
    mlp = replace(layer.feed_forward, intermediate_size=wide * layer.feed_forward.intermediate_size)
    return replace(layer, mixer=replace(layer.mixer, kv_source=source), feed_forward=mlp)


def _with_experts(config: DecoderConfig, fields: Fields) -> DecoderConfig:
    if not fields.boolean("enable_moe_block", False):
        return config

    experts = parse_experts(
        fields.replaced(num_experts_per_tok=fields.integer("top_k_experts")),
        size_field="moe_intermediate_size",
        normalize=True,
        activation="gelu_tanh",
        expert_scales=True,
    )

    def mixed(dense: Any) -> DenseAndExpertsConfig:  # noqa: ANN401
        return DenseAndExpertsConfig(dense=dense, experts=experts)

    layers = (replace(n, feed_forward=mixed(n.feed_forward)) for n in config.layers)
    return replace(config, layers=tuple(layers))
