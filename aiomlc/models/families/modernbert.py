"""ModernBERT: a bidirectional encoder with RoPE, and windows in two of three layers."""

from __future__ import annotations

__all__ = ("parse",)

from dataclasses import replace

from aiomlc.models.config.decoder import DecoderConfig
from aiomlc.models.config.decoder_fields import ConfigRules, DecoderTraits, parse_decoder
from aiomlc.models.config.encoder import BlockEncoderConfig, ClassifierConfig
from aiomlc.models.config.fields import Fields, refuse_quantized
from aiomlc.models.config.layers import AttentionConfig, LayerConfig
from aiomlc.models.config.rope_fields import parse_rope
from aiomlc.models.config.sliding_window import sliding_layers
from aiomlc.models.families.sequence_classifier import is_classifier, num_labels

_THETAS = {"full_attention": 160_000.0, "sliding_attention": 10_000.0}
_KINDS = tuple(_THETAS)
_OLD_THETAS = {"full_attention": "global_rope_theta", "sliding_attention": "local_rope_theta"}


def parse(fields: Fields) -> BlockEncoderConfig:
    """Read a config of model type `modernbert`.

    Raises:
        ModelLoadError: If a field is missing, has the wrong type or a value that is not supported.
    """
    refuse_quantized(fields)
    classifier = _parse_classifier(fields) if is_classifier(fields) else None
    return BlockEncoderConfig(
        blocks=_parse_blocks(fields),
        is_causal=False,
        has_embedding_norm=True,
        hf_prefix="model.",
        classifier=classifier,
    )


def _parse_blocks(fields: Fields) -> DecoderConfig:
    bias = fields.boolean("attention_bias", False)
    has_norm_bias = fields.boolean("norm_bias", False)
    traits = DecoderTraits(
        hf_fused=("qkv_proj", "gate_up_proj"),
        qkv_bias=bias,
        output_bias=bias,
        norm_kind="layer" if has_norm_bias else "layer_without_bias",
        activation="gelu",
    )
    rules = ConfigRules(norm_eps_field="norm_eps", tie_word_embeddings=True)
    plain = fields.without("rope_parameters").without("rope_scaling")
    config = parse_decoder(plain.without("rope_theta"), "modernbert", traits, rules)
    kinds = _layer_types(fields, config.num_hidden_layers)
    plans = {kind: _attention(fields, config, kind) for kind in set(kinds)}
    layers = [replace(config.layers[0], mixer=plans[kind]) for kind in kinds]
    layers[0] = replace(layers[0], norm_placement="pre_mlp")
    return replace(config, layers=tuple[LayerConfig, ...](layers))


def _layer_types(fields: Fields, count: int) -> list[str]:
    if "layer_types" in fields:
        return [_KINDS[slides] for slides in sliding_layers(fields, count, 1)]

    interval = fields.integer("global_attn_every_n_layers", 3)
    return [_KINDS[i % interval > 0] for i in range(count)]


def _attention(fields: Fields, config: DecoderConfig, kind: str) -> AttentionConfig:
    plan = config.attention[0]
    settings = fields.nested("rope_parameters")
    if kind in settings:
        own = fields.narrowed("rope_parameters", kind)
    else:
        own = fields.without("rope_parameters")
    theta = fields.number(_OLD_THETAS[kind], _THETAS[kind])
    rope = parse_rope(own, head_dim=plan.head_dim, context=config.context_window_size, theta=theta)
    if kind == "full_attention":
        return replace(plan, rope=rope)

    # As many tokens on both sides; the size includes the current token and those of one side.
    window = fields.integer("local_attention", 128) // 2 + 1
    return replace(plan, rope=rope).with_window(window, 0, config.context_window_size)


def _parse_classifier(fields: Fields) -> ClassifierConfig:
    pooling = fields.choice("classifier_pooling", ("cls", "mean"), "cls")
    fields.choice("classifier_activation", ("gelu",), "gelu")
    if fields.boolean("norm_bias", False):
        raise fields.error("norm_bias", "must be false for a sequence classifier, got true")

    return ClassifierConfig(
        num_labels=num_labels(fields),
        pooling="first" if pooling == "cls" else "mean",
        dense="head.dense",
        dense_bias=fields.boolean("classifier_bias", False),
        activation="gelu",
        norm="head.norm",
        output="classifier",
    )
