"""The config of a decoder-only transformer, common to all families."""

from __future__ import annotations

__all__ = (
    "CacheShape",
    "ConfigRules",
    "DecoderConfig",
    "DecoderTraits",
    "NormKind",
    "PerLayerEmbedding",
    "parse_decoder",
)

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Self

from aiomlc.models.config.activation import Activation, parse_activation
from aiomlc.models.config.checkpoint import CheckpointLayout, HFExpertsLayout, HFQKVLayout
from aiomlc.models.config.fields import Fields
from aiomlc.models.config.layers import (
    AttentionConfig,
    DenseAndExpertsConfig,
    ExpertsConfig,
    LayerConfig,
    MlpConfig,
    NormPlacement,
    QKNormKind,
    RecurrentConfig,
)
from aiomlc.models.config.rope import DEFAULT_THETA, RopeConfig
from aiomlc.models.config.rope_fields import parse_rope
from aiomlc.models.config.shards import divided_layer, require_divisible
from aiomlc.models.config.sliding_window import (
    HFWindow,
    parse_context,
    parse_sinks,
    parse_windows,
)

NormKind = Literal["rms", "layer", "layer_without_bias"]

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


#: The elements that take as many bytes as the scale of a head: none, of int8, and of int4.
_SCALE_ELEMENTS = (0, 4, 8)


class CacheShape(NamedTuple):
    """The shape of a paged KV cache, in which all layers have the same heads.

    The heads of a layer that has others take a part of the memory of these.
    """

    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PerLayerEmbedding:
    """A second embedding of every token, which has some numbers for each layer."""

    vocab_size: int
    size: int  #: Numbers of one layer.


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderConfig:
    """The sizes that all layers share, and the plan of each layer: they determine a decoder's graph
    and its parameters."""

    kind: Literal["decoder"] = "decoder"
    model_type: str
    vocab_size: int
    hidden_size: int
    context_window_size: int
    norm_kind: NormKind = "rms"
    norm_eps: float
    tie_word_embeddings: bool
    layers: tuple[LayerConfig, ...]
    head_bias: bool = False
    rope_theta: float = DEFAULT_THETA  #: Base of RoPE; layers with windows may have another.
    embedding_scale: float = 1.0  #: Factor on token embeddings.
    logit_scale: float = 1.0  #: Factor on logits.
    #: Logits become `cap * tanh(logit / cap)`; 0 disables softcapping.
    final_logit_softcapping: float = 0.0
    per_layer_embedding: PerLayerEmbedding | None = None
    #: The first layers to whose outputs embedded pieces add further rows (deepstack of Qwen 3 VL).
    num_piece_layers: int = 0
    checkpoint: CheckpointLayout = field(default_factory=CheckpointLayout)
    #: The shards that compute the model together; the sizes above are those of all of them.
    num_shards: int = 1

    @property
    def shard(self) -> Self:
        """The config with the sizes of one shard."""
        if self.num_shards == 1:
            return self

        layers = (divided_layer(layer, self.num_shards) for layer in self.layers)
        return replace(self, layers=tuple(layers))

    @property
    def has_divided_head(self) -> bool:
        """Whether each shard computes the logits of a part of the vocabulary."""
        return self.num_shards > 1 and self.vocab_size % self.num_shards == 0

    @property
    def reuses_embedding(self) -> bool:
        """Whether the output head is the matrix of the embedding; a divided head is another."""
        return self.tie_word_embeddings and not self.has_divided_head

    @property
    def num_hidden_layers(self) -> int:
        """The number of layers."""
        return len(self.layers)

    @property
    def attention(self) -> tuple[AttentionConfig, ...]:
        """The layers that have keys and values in the KV cache, in its order."""
        mixers = (layer.mixer for layer in self.layers)
        return tuple(
            mixer
            for mixer in mixers
            if isinstance(mixer, AttentionConfig) and mixer.kv_source is None
        )

    @property
    def num_streams(self) -> int:
        """The residual streams, which all layers share."""
        streams = self.layers[0].streams
        return 1 if streams is None else streams.count

    def cache_index(self, layer: int) -> int:
        """Return the index in `attention` of layer `layer`, or of the one whose keys it reads."""
        mixer = self.layers[layer].mixer
        assert isinstance(mixer, AttentionConfig)
        owner = layer if mixer.kv_source is None else mixer.kv_source
        return len(replace(self, layers=self.layers[:owner]).attention)

    @property
    def recurrent(self) -> tuple[RecurrentConfig, ...]:
        """The layers that keep a state of constant size per sequence, in the state's order."""
        mixers = (layer.mixer for layer in self.layers)
        return tuple(mixer for mixer in mixers if not isinstance(mixer, AttentionConfig))

    @property
    def windows(self) -> tuple[int, ...]:
        """The window of each layer of `attention`; empty if none has one."""
        windows = tuple(layer.window for layer in self.attention)
        return windows if any(windows) else ()

    @property
    def experts(self) -> tuple[ExpertsConfig, ...]:
        """The experts of the layers that have them."""
        parts = (
            layer.experts if isinstance(layer, DenseAndExpertsConfig) else layer
            for layer in (layer.feed_forward for layer in self.layers)
        )
        return tuple(part for part in parts if isinstance(part, ExpertsConfig))

    @property
    def has_experts(self) -> bool:
        """Whether the model is a mixture of experts."""
        return bool(self.experts)

    @property
    def embedded_size(self) -> int:
        """The numbers of an embedded token: the hidden state, and the embeddings for all layers."""
        embedding = self.per_layer_embedding
        own = 0 if embedding is None else embedding.size * self.num_hidden_layers
        return self.hidden_size + own

    @property
    def embedded_row_size(self) -> int:
        """The numbers of a row of an embedded piece."""
        return self.hidden_size * (1 + self.num_piece_layers)

    @property
    def needs_whole_pieces(self) -> bool:
        """Whether one pass must have all positions of an embedded piece."""
        return any(layer.sees_whole_pieces for layer in self.attention)

    @property
    def rope_axes(self) -> tuple[int, ...]:
        """See `RopeConfig.axes`, which all layers share."""
        axes = (layer.rope.axes(layer.head_dim) for layer in self.attention if layer.rope)
        return next(axes, ())

    @property
    def cache_shape(self) -> CacheShape:
        """The shape of the KV cache."""
        layers = [n.mixer for n in self.layers if isinstance(n.mixer, AttentionConfig)]
        # The heads of the largest layer, and as many as hold those of every other one.
        size = max(layers, key=lambda n: n.num_kv_heads * (n.head_dim + 4)).head_dim

        def heads(count: int, head_dim: int) -> int:
            rows = ((head_dim + more, size + more) for more in _SCALE_ELEMENTS)
            return max(-(-count * own // row) for own, row in rows)

        kv_heads = max(heads(n.num_kv_heads, n.head_dim) for n in layers)
        queries = max(heads(n.num_heads, n.head_dim) for n in layers)
        queries = -(-queries // kv_heads) * kv_heads
        return CacheShape(len(self.attention), queries, kv_heads, size)

    @property
    def has_equal_heads(self) -> bool:
        """Whether all layers have the heads of the KV cache."""
        shape = self.cache_shape[1:]
        return all((n.num_heads, n.num_kv_heads, n.head_dim) == shape for n in self.attention)

    def with_shards(self, count: int) -> Self:
        """Return the config for `count` shards.

        Raises:
            BadRequestError: If the model cannot be divided; `param` is `tensor_parallel_shards`.
        """
        if count > 1:
            require_divisible(self.layers, count)
        return replace(self, num_shards=count)

    def map_attention(self, change: Callable[[AttentionConfig], AttentionConfig]) -> Self:
        """Return the config with `change` applied to the attention of every layer that has it."""
        layers = (
            replace(layer, mixer=change(layer.mixer))
            if isinstance(layer.mixer, AttentionConfig)
            else layer
            for layer in self.layers
        )
        return replace(self, layers=tuple(layers))

    def with_recurrent(self, mixer: RecurrentConfig, chosen: Sequence[bool]) -> Self:
        """Return the config with a recurrent mixer in the layers that are chosen."""
        layers = (
            replace(layer, mixer=mixer) if is_chosen else layer
            for layer, is_chosen in zip(self.layers, chosen, strict=True)
        )
        return replace(self, layers=tuple(layers))

    def with_attention(self, **changes: Any) -> Self:  # noqa: ANN401 - of any field.
        """Return the config with other values of some fields of `AttentionConfig`."""
        return self.map_attention(lambda attention: replace(attention, **changes))

    def with_rope(self, rope: RopeConfig | None, chosen: Sequence[bool]) -> Self:
        """Return the config with another RoPE, or none, in the layers that are chosen."""
        layers = (
            replace(layer, mixer=replace(layer.mixer, rope=rope))
            if is_chosen and isinstance(layer.mixer, AttentionConfig)
            else layer
            for layer, is_chosen in zip(self.layers, chosen, strict=True)
        )
        return replace(self, layers=tuple(layers))

    def with_window(self, size: int | None, sinks: int | None) -> Self:
        """Return the config with another window in the layers that have one, or in all if none has.

        Args:
            size: The window in positions; None keeps each layer's window, -1 and 0 remove it.
            sinks: The number of attention sinks; None keeps it, -1 and 0 mean no sinks.
        """
        is_mixed = bool(self.windows)

        def changed(attention: AttentionConfig) -> AttentionConfig:
            window = attention.window
            if size is not None and (window or not is_mixed):
                window = max(0, size)
            new_sinks = attention.sinks if sinks is None else max(0, sinks)
            return attention.with_window(window, new_sinks, self.context_window_size)

        return self.map_attention(changed)

    def within(self, tokens: int | None) -> Self:
        """Return the config with RoPE for sequences of at most `tokens` tokens; None keeps it."""
        if tokens is None:
            return self

        return self.map_attention(
            lambda attention: replace(
                attention, rope=attention.rope and attention.rope.within(tokens)
            )
        )


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
