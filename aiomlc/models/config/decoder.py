"""What a decoder-only transformer looks like, whichever family it comes from."""

from __future__ import annotations

__all__ = ("DecoderConfig", "NormKind", "NormPlace", "Traits", "parse_decoder")

from dataclasses import dataclass, field, replace
from typing import Literal, Self

from aiomlc.models.config.activation import Activation, parse_activation
from aiomlc.models.config.fields import Fields
from aiomlc.models.config.moe import ExpertsConfig
from aiomlc.models.config.rope import DEFAULT_THETA, RopeConfig
from aiomlc.models.config.rope_fields import parse_rope
from aiomlc.models.config.sliding_window import (
    HFWindow,
    parse_context,
    parse_sinks,
    parse_windows,
    windows_within,
)

NormKind = Literal["rms", "layer", "layer_without_bias"]
#: Where a block's norms stand: before attention and the feed-forward layer, one after the other;
#: behind them; before and behind each (`around`); or before both, side by side, with a norm each
#: (`parallel`) or one (`shared`).
NormPlace = Literal["before", "behind", "around", "parallel", "shared"]
#: Rows of queries, keys and values in a Hugging Face directory: one part after the other, as ours;
#: or a head's three parts, then the next head's; or the first, but with the dimensions that turn
#: together side by side.
HFQKVLayout = Literal["parts", "heads", "pairs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderConfig:
    """The sizes and switches that decide a decoder's graph and its parameters."""

    model_type: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    context_window_size: int
    rms_norm_eps: float  #: Of norms of either kind.
    tie_word_embeddings: bool
    rope: RopeConfig = field(default_factory=RopeConfig)
    #: Each layer's own, None if its heads do not turn; empty if all have `rope`.
    layer_ropes: tuple[RopeConfig | None, ...] = ()
    qkv_name: str = "qkv_proj"  #: MLC's name of the fused projection.
    hf_fused: tuple[str, ...] = ()  #: Matrices that are one in the hub's files, too.
    hf_qkv_layout: HFQKVLayout = "parts"
    qkv_bias: bool = False
    output_bias: bool = False
    qk_norm: bool = False
    norm_kind: NormKind = "rms"
    gated: bool = True  #: The feed-forward layer has a gate; else it is plain.
    mlp_bias: bool = False
    activation: Activation = "silu"
    embedding_scale: float = 1.0  #: What a token's embedding is multiplied with.
    attention_scale: float | None = None  #: Of queries times keys; None is `head_dim ** -0.5`.
    logit_scale: float = 1.0  #: What logits are multiplied with.
    attn_logit_softcapping: float = 0.0  #: Scores become `cap * tanh(score / cap)`; 0 is no cap.
    final_logit_softcapping: float = 0.0  #: The same of the logits.
    norm_weight_offset: float = (
        0.0  #: What the norms' weights of a Hugging Face directory leave out.
    )
    qk_norm_full_width: bool = False  #: One norm for the queries, one for the keys.
    norms: NormPlace = "before"
    head_bias: bool = False
    #: Positions that each layer's rows see, their own the last, 0 for all; empty if no layer has
    #: a window.
    windows: tuple[int, ...] = ()
    attention_sinks: int = 0  #: First positions of a sequence that no window hides.
    experts: ExpertsConfig | None = None  #: In place of the gated layers of some layers or all.

    def with_window(self, size: int | None, sinks: int | None) -> Self:
        """The same with other windows, in the layers that have one, or in all if none has.

        None leaves a value as it is; -1 and 0 are no window and no sinks.
        """
        windows = self.windows
        if size is not None:
            slides = windows or (1,) * self.num_hidden_layers
            new = tuple(max(0, size) if window else 0 for window in slides)
            windows = windows_within(self.context_window_size, new)
        kept = self.attention_sinks if sinks is None else max(0, sinks)
        return replace(self, windows=windows, attention_sinks=kept if windows else 0)

    def within(self, tokens: int | None) -> Self:
        """The same, rotated as sequences of at most that many tokens are to be; None is all."""
        if tokens is None:
            return self

        layer_ropes = tuple(rope and rope.within(tokens) for rope in self.layer_ropes)
        return replace(self, rope=self.rope.within(tokens), layer_ropes=layer_ropes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What sets one family apart from the others."""

    qkv_name: str = "qkv_proj"
    hf_fused: tuple[str, ...] = ()
    hf_qkv_layout: HFQKVLayout = "parts"
    qkv_bias: bool = False
    output_bias: bool = False
    qk_norm: bool = False
    norm_kind: NormKind = "rms"
    norm_eps: str = "rms_norm_eps"  #: The field.
    gated: bool = True
    mlp_bias: bool = False
    activation: Activation = "silu"
    tied: bool = False  #: Whether the head shares the embedding's weights, where not said.
    qk_norm_full_width: bool = False
    norms: NormPlace = "before"
    head_bias: bool = False
    head_dim: int | None = None  #: Where the config names none; None is an even share.
    #: Of a head's dimensions that turn, where the config names none; None if all always do.
    partial_rotary_factor: float | None = None
    theta: float = DEFAULT_THETA  #: The rotation's base, where the config names none.
    full_every: int = 0  #: Of as many layers the last has no window, if windows are "interleaved".
    window: HFWindow = "never"  #: When a `sliding_window` is meant.


def parse_decoder(fields: Fields, model_type: str, traits: Traits) -> DecoderConfig:
    """Read the fields that all families share.

    Raises:
        ModelLoadError: a field is missing, of a wrong type, or asks for what is not supported.
    """
    _refuse_unsupported(fields)
    heads = fields.integer("num_attention_heads")
    hidden = fields.integer("hidden_size")
    layers = fields.integer("num_hidden_layers")
    windows = parse_windows(fields, traits.window, layers, traits.full_every)
    context = parse_context(fields, windows)
    head_dim = _head_dim(fields, hidden, heads, traits.head_dim)
    windows = windows_within(context, windows)
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
        rms_norm_eps=fields.number(traits.norm_eps, 1e-6 if traits.norm_kind == "rms" else 1e-5),
        tie_word_embeddings=fields.boolean("tie_word_embeddings", traits.tied),
        rope=parse_rope(
            fields,
            head_dim=head_dim,
            context=context,
            share=traits.partial_rotary_factor,
            theta=traits.theta,
        ),
        qkv_name=traits.qkv_name,
        hf_fused=traits.hf_fused,
        hf_qkv_layout=traits.hf_qkv_layout,
        qkv_bias=traits.qkv_bias,
        output_bias=traits.output_bias,
        qk_norm=traits.qk_norm,
        norm_kind=traits.norm_kind,
        gated=traits.gated,
        mlp_bias=traits.mlp_bias or fields.boolean("mlp_bias", False),
        activation=parse_activation(fields, traits.activation, gated=traits.gated),
        qk_norm_full_width=traits.qk_norm_full_width,
        norms=traits.norms,
        head_bias=traits.head_bias,
        windows=windows,
        attention_sinks=parse_sinks(fields) if windows else 0,
    )


def _refuse_unsupported(fields: Fields) -> None:
    if "quantization_config" in fields:
        raise fields.error("quantization_config", "is set: weights that are quantised already")


def _key_value_heads(fields: Fields, heads: int) -> int:
    # MLC writes 0 for "as many as query heads".
    groups = fields.integer("num_key_value_heads", 0, minimum=0) or heads
    if heads % groups:
        raise fields.error("num_key_value_heads", f"is {groups}, no divisor of {heads} heads")

    return groups


def _head_dim(fields: Fields, hidden: int, heads: int, default: int | None) -> int:
    size = fields.integer("head_dim", default or 0, minimum=0)
    if size == 0 and hidden % heads:
        raise fields.error("num_attention_heads", f"is {heads}, no divisor of {hidden}")

    size = size or hidden // heads
    if size % 2:
        raise fields.error("head_dim", f"is {size}, which is odd")

    return size
