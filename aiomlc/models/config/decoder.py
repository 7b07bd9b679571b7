"""The config of a decoder-only transformer, common to all families."""

from __future__ import annotations

__all__ = (
    "CacheShape",
    "DecoderConfig",
    "NormKind",
    "PerLayerEmbedding",
)

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, Self

from aiomlc.models.config.checkpoint import CheckpointLayout
from aiomlc.models.config.layers import (
    AttentionConfig,
    DenseAndExpertsConfig,
    ExpertsConfig,
    LayerConfig,
    RecurrentConfig,
)
from aiomlc.models.config.rope import DEFAULT_THETA, RopeConfig
from aiomlc.models.config.shards import divided_layer, require_divisible

NormKind = Literal["rms", "layer", "layer_without_bias"]

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
