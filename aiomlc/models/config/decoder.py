"""The config of a decoder-only transformer, common to all families."""

from __future__ import annotations

__all__ = (
    "ConfigRules",
    "DecoderConfig",
    "DecoderTraits",
    "NormKind",
    "NormPlacement",
    "parse_decoder",
)

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal, Self

from aiomlc.models.config.activation import Activation, parse_activation
from aiomlc.models.config.fields import Fields
from aiomlc.models.config.moe import ExpertsConfig
from aiomlc.models.config.rope import DEFAULT_THETA, RopeConfig
from aiomlc.models.config.rope_fields import parse_rope
from aiomlc.models.config.sliding_window import (
    HFWindow,
    limit_windows,
    parse_context,
    parse_sinks,
    parse_windows,
)

NormKind = Literal["rms", "layer", "layer_without_bias"]
#: What the norms of a block apply to. `pre`: the inputs of attention and of the feed-forward layer.
#: `post`: their outputs. `sandwich`: inputs and outputs. `parallel` and `parallel_shared`: both
#: layers read the same hidden state, through a norm each or through one norm.
NormPlacement = Literal["pre", "post", "sandwich", "parallel", "parallel_shared"]
#: Row order of the QKV matrix in a Hugging Face directory. `concatenated`: all queries, then keys,
#: then values, as in the graph. `per_head`: query, key and value of the first head, then of the
#: next. `interleaved_rope`: concatenated, but the two dimensions of a rotary pair are neighbors.
HFQKVLayout = Literal["concatenated", "per_head", "interleaved_rope"]

# Defaults of transformers for an omitted epsilon, where they are not 1e-6 (RMSNorm) or 1e-5
# (LayerNorm).
_NORM_EPS: Mapping[str, float] = MappingProxyType(
    {
        "ernie4_5": 1e-5,
        "exaone4": 1e-5,
        "glm": 1.5625e-7,
        "glm4": 1.5625e-7,
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
    """The traits that distinguish the layers of one family from those of another."""

    qkv_name: str = "qkv_proj"  #: MLC's name of the fused QKV matrix.
    hf_fused: tuple[str, ...] = ()  #: Matrices that are also fused in a Hugging Face directory.
    hf_qkv_layout: HFQKVLayout = "concatenated"
    qkv_bias: bool = False
    output_bias: bool = False  #: Whether the output projection of attention has a bias.
    mlp_bias: bool = False
    head_bias: bool = False
    qk_norm: bool = False
    qk_norm_full_width: bool = False  #: Whether one norm spans all heads, not each head.
    norm_kind: NormKind = "rms"
    norm_placement: NormPlacement = "pre"
    gated: bool = True  #: Whether the feed-forward layer has a gate.
    activation: Activation = "silu"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigRules:
    """How to read the configs of one family: field names, and defaults for omitted fields."""

    norm_eps_field: str = "rms_norm_eps"
    tie_word_embeddings: bool = False  #: Default of `tie_word_embeddings`.
    head_dim: int | None = None  #: Default of `head_dim`; None is `hidden_size / heads`.
    #: Default of `partial_rotary_factor`; None for a family that always rotates the whole head.
    partial_rotary_factor: float | None = None
    rope_theta: float = DEFAULT_THETA  #: Default of `rope_theta`.
    hf_window: HFWindow = "never"
    #: With `interleaved` windows, every n-th layer has full attention unless the config specifies
    #: the layers.
    full_attention_interval: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderConfig:
    """The sizes and traits that determine a decoder's graph and its parameters."""

    model_type: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    context_window_size: int
    norm_eps: float
    tie_word_embeddings: bool
    traits: DecoderTraits = field(default_factory=DecoderTraits)
    rope: RopeConfig = field(default_factory=RopeConfig)
    #: RoPE of each layer, None for a layer without RoPE; empty if all layers have `rope`.
    layer_ropes: tuple[RopeConfig | None, ...] = ()
    embedding_scale: float = 1.0  #: Factor on token embeddings.
    attention_scale: float | None = None  #: Factor on attention scores; None: `head_dim ** -0.5`.
    logit_scale: float = 1.0  #: Factor on logits.
    #: Attention scores become `cap * tanh(score / cap)`; 0 disables softcapping.
    attn_logit_softcapping: float = 0.0
    final_logit_softcapping: float = 0.0  #: The same for logits.
    #: Added to the norm weights of a Hugging Face directory, which stores them minus this offset.
    norm_weight_offset: float = 0.0
    #: Window size of each layer in positions, the current one included; 0 for full attention. Empty
    #: if no layer has a window.
    windows: tuple[int, ...] = ()
    attention_sinks: int = 0  #: First positions of a sequence that stay visible in every window.
    experts: ExpertsConfig | None = None  #: Replaces the MLP of some layers or all.

    def with_window(self, size: int | None, sinks: int | None) -> Self:
        """Return the config with another window in the layers that have one, or in all if none has.

        Args:
            size: The window in positions; None keeps each layer's window, -1 and 0 remove it.
            sinks: The number of attention sinks; None keeps it, -1 and 0 mean no sinks.
        """
        windows = self.windows
        if size is not None:
            is_sliding = windows or (1,) * self.num_hidden_layers
            resized = tuple(max(0, size) if window else 0 for window in is_sliding)
            windows = limit_windows(resized, self.context_window_size)
        new_sinks = self.attention_sinks if sinks is None else max(0, sinks)
        return replace(self, windows=windows, attention_sinks=new_sinks if windows else 0)

    def within(self, tokens: int | None) -> Self:
        """Return the config with RoPE for sequences of at most `tokens` tokens; None keeps it."""
        if tokens is None:
            return self

        layer_ropes = tuple(rope and rope.within(tokens) for rope in self.layer_ropes)
        return replace(self, rope=self.rope.within(tokens), layer_ropes=layer_ropes)


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
    heads = fields.integer("num_attention_heads")
    hidden = fields.integer("hidden_size")
    layers = fields.integer("num_hidden_layers")
    windows = parse_windows(fields, rules.hf_window, layers, rules.full_attention_interval)
    context = parse_context(fields, windows)
    windows = limit_windows(windows, context)
    head_dim = _head_dim(fields, hidden, heads, rules.head_dim)
    return DecoderConfig(
        model_type=model_type,
        vocab_size=fields.integer("vocab_size"),
        hidden_size=hidden,
        intermediate_size=fields.integer("intermediate_size"),
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=_key_value_heads(fields, heads),
        head_dim=head_dim,
        context_window_size=context,
        norm_eps=fields.number(rules.norm_eps_field, _default_norm_eps(model_type, traits)),
        tie_word_embeddings=fields.boolean("tie_word_embeddings", rules.tie_word_embeddings),
        rope=parse_rope(
            fields,
            head_dim=head_dim,
            context=context,
            partial_rotary_factor=rules.partial_rotary_factor,
            theta=rules.rope_theta,
        ),
        traits=_parse_traits(fields, traits),
        windows=windows,
        attention_sinks=parse_sinks(fields) if windows else 0,
    )


def _default_norm_eps(model_type: str, traits: DecoderTraits) -> float:
    return _NORM_EPS.get(model_type, 1e-6 if traits.norm_kind == "rms" else 1e-5)


def _parse_traits(fields: Fields, traits: DecoderTraits) -> DecoderTraits:
    return replace(
        traits,
        mlp_bias=traits.mlp_bias or fields.boolean("mlp_bias", False),
        activation=parse_activation(fields, traits.activation, gated=traits.gated),
    )


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
