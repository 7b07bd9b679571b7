"""The fields of a decoder's config, which all families read alike but for their rules."""

from __future__ import annotations

__all__ = ("ConfigRules", "DecoderTraits", "parse_decoder")

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from aiomlc.models.config.activation import Activation, parse_activation
from aiomlc.models.config.checkpoint import CheckpointLayout, HFExpertsLayout, HFQKVLayout
from aiomlc.models.config.decoder import DecoderConfig, NormKind
from aiomlc.models.config.fields import Fields
from aiomlc.models.config.layers import (
    AttentionConfig,
    LayerConfig,
    MlpConfig,
    NormPlacement,
    QKNormKind,
)
from aiomlc.models.config.rope import DEFAULT_THETA
from aiomlc.models.config.rope_fields import parse_rope
from aiomlc.models.config.sliding_window import (
    HFWindow,
    parse_context,
    parse_sinks,
    parse_windows,
)

# Defaults of transformers for an omitted epsilon, where they are not 1e-6 (RMSNorm) or 1e-5
# (LayerNorm).
_NORM_EPS: Mapping[str, float] = MappingProxyType(
    {
        "ernie4_5": 1e-5,
        "exaone4": 1e-5,
        "glm": 1.5625e-7,
        "glm4": 1.5625e-7,
        "gpt_oss": 1e-5,
        "helium": 1e-8,
        "internlm3": 1e-5,
        "mixtral": 1e-5,
        "olmo2": 1e-5,
        "olmo3": 1e-5,
        "olmoe": 1e-5,
        "phi3": 1e-5,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderTraits:
    """The traits of a family's layers, all of which are alike unless it plans others."""

    qkv_name: str = "qkv_proj"  #: MLC's name of the fused QKV matrix.
    hf_fused: tuple[str, ...] = ()  #: Matrices that are also fused in a Hugging Face directory.
    hf_qkv_layout: HFQKVLayout = "concatenated"
    hf_experts_layout: HFExpertsLayout = "outputs"
    hf_norm_offset: float = 0.0  #: See `CheckpointLayout`.
    qkv_bias: bool = False
    output_bias: bool = False  #: Whether the output projection of attention has a bias.
    mlp_bias: bool = False
    head_bias: bool = False
    qk_norm: QKNormKind = "none"
    norm_kind: NormKind = "rms"
    norm_placement: NormPlacement = "pre"
    gated: bool = True  #: Whether the feed-forward layer has a gate.
    activation: Activation = "silu"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigRules:
    """The rules for the configs of one family: field names, and defaults for omitted fields."""

    norm_eps_field: str = "rms_norm_eps"
    intermediate_size_field: str = "intermediate_size"
    tie_word_embeddings: bool = False  #: Default of `tie_word_embeddings`.
    head_dim: int | None = None  #: Default of `head_dim`; None is `hidden_size / heads`.
    #: Default of `partial_rotary_factor`; None for a family that always rotates the whole head.
    partial_rotary_factor: float | None = None
    rope_theta: float = DEFAULT_THETA  #: Default of `rope_theta`.
    rope_pads_to_head_dim: bool = False  #: See `RopeConfig.pads_to_head_dim`.
    hf_window: HFWindow = "never"
    #: With `interleaved` windows, every n-th layer has full attention unless the config specifies
    #: the layers.
    full_attention_interval: int = 0


def parse_decoder(
    fields: Fields,
    model_type: str,
    traits: DecoderTraits | None = None,
    rules: ConfigRules | None = None,
) -> DecoderConfig:
    """Read the fields that all families share.

    Args:
        fields: The model's config.
        model_type: The family.
        traits: The family's traits; the config may add an MLP bias and choose an activation.
        rules: How the family's configs are read.

    Raises:
        ModelLoadError: If a field is missing, has the wrong type or a value that is not supported.
    """
    traits = traits or DecoderTraits()
    rules = rules or ConfigRules()
    hidden = fields.integer("hidden_size")
    num_layers = fields.integer("num_hidden_layers")
    windows = parse_windows(fields, rules.hf_window, num_layers, rules.full_attention_interval)
    context = parse_context(fields, windows)
    attention = _parse_attention(fields, traits, rules, hidden, context)
    layer = LayerConfig(
        mixer=attention,
        feed_forward=_parse_mlp(fields, traits, rules),
        norm_placement=traits.norm_placement,
    )
    sinks = parse_sinks(fields) if any(windows) else 0
    assert attention.rope is not None
    return DecoderConfig(
        model_type=model_type,
        vocab_size=fields.integer("vocab_size"),
        hidden_size=hidden,
        context_window_size=context,
        norm_kind=traits.norm_kind,
        norm_eps=fields.number(rules.norm_eps_field, _default_norm_eps(model_type, traits)),
        tie_word_embeddings=fields.boolean("tie_word_embeddings", rules.tie_word_embeddings),
        layers=tuple(
            replace(layer, mixer=attention.with_window(window, sinks, context))
            for window in windows
        ),
        head_bias=traits.head_bias,
        rope_theta=attention.rope.theta,
        checkpoint=CheckpointLayout(
            qkv_name=traits.qkv_name,
            hf_fused=traits.hf_fused,
            hf_qkv_layout=traits.hf_qkv_layout,
            hf_experts_layout=traits.hf_experts_layout,
            hf_norm_offset=traits.hf_norm_offset,
        ),
    )


def _parse_attention(
    fields: Fields, traits: DecoderTraits, rules: ConfigRules, hidden: int, context: int
) -> AttentionConfig:
    heads = fields.integer("num_attention_heads")
    head_dim = _head_dim(fields, hidden, heads, rules.head_dim)
    return AttentionConfig(
        num_heads=heads,
        num_kv_heads=_key_value_heads(fields, heads),
        head_dim=head_dim,
        scale=head_dim**-0.5,
        rope=parse_rope(
            fields,
            head_dim=head_dim,
            context=context,
            partial_rotary_factor=rules.partial_rotary_factor,
            theta=rules.rope_theta,
            pads_to_head_dim=rules.rope_pads_to_head_dim,
        ),
        qkv_bias=traits.qkv_bias,
        output_bias=traits.output_bias,
        qk_norm=traits.qk_norm,
    )


def _parse_mlp(fields: Fields, traits: DecoderTraits, rules: ConfigRules) -> MlpConfig:
    return MlpConfig(
        intermediate_size=fields.integer(rules.intermediate_size_field),
        activation=parse_activation(fields, traits.activation, gated=traits.gated),
        gated=traits.gated,
        bias=traits.mlp_bias or fields.boolean("mlp_bias", False),
    )


def _default_norm_eps(model_type: str, traits: DecoderTraits) -> float:
    return _NORM_EPS.get(model_type, 1e-6 if traits.norm_kind == "rms" else 1e-5)


def _key_value_heads(fields: Fields, heads: int) -> int:
    # MLC writes 0 for "as many as query heads".
    kv_heads = fields.integer("num_key_value_heads", 0) or heads
    if heads % kv_heads:
        problem = f"must divide num_attention_heads ({heads}), got {kv_heads}"
        raise fields.error("num_key_value_heads", problem)

    return kv_heads


def _head_dim(fields: Fields, hidden: int, heads: int, default: int | None) -> int:
    size = fields.integer("head_dim", default or 0)
    if size == 0 and hidden % heads:
        raise fields.error(
            "num_attention_heads", f"must divide hidden_size ({hidden}), got {heads}"
        )

    size = size or hidden // heads
    if size % 2:
        raise fields.error("head_dim", f"must be even, got {size}")

    return size
