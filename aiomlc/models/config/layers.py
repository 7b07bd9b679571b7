"""The plan of a decoder's layers: what mixes the tokens of a layer, its feed-forward layer, and the
norms around them.

Graph, parameters, KV cache and memory plan all follow this plan. A layer of another kind, such as a
recurrent one, is another class of `MixerConfig`.
"""

from __future__ import annotations

__all__ = (
    "AttentionConfig",
    "DenseAndExpertsConfig",
    "ExpertsConfig",
    "FeedForwardConfig",
    "GatedDeltaConfig",
    "LayerConfig",
    "MixerConfig",
    "MlpConfig",
    "NormPlacement",
    "QKNormKind",
    "RecurrentConfig",
    "ShortConvConfig",
    "StreamsConfig",
)

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import ClassVar, Literal, Self

from aiomlc.models.config.activation import Activation, ExpertActivation
from aiomlc.models.config.rope import RopeConfig

#: The graph's name of the layer that mixes tokens, as in most checkpoints.
MixerName = Literal["self_attn", "conv", "linear_attn"]
#: The hidden states that a block norms. `pre`: the inputs of attention and of the feed-forward
#: layer. `pre_mlp`: the inputs of the feed-forward layer only. `post`: their outputs. `sandwich`:
#: inputs and outputs. `parallel` and `parallel_shared`: both layers read the same hidden state,
#: through a norm each or through one norm.
NormPlacement = Literal["pre", "pre_mlp", "post", "sandwich", "parallel", "parallel_shared"]
#: Whether queries and keys have an RMSNorm for each head, or one over all heads.
QKNormKind = Literal["none", "per_head", "full_width"]

_PARTS: Mapping[NormPlacement, tuple[str, ...]] = MappingProxyType(
    {
        "pre": ("input_layernorm", "mixer", "post_attention_layernorm", "mlp"),
        "pre_mlp": ("mixer", "post_attention_layernorm", "mlp"),
        "post": ("mixer", "post_attention_layernorm", "mlp", "post_feedforward_layernorm"),
        "sandwich": (
            "input_layernorm",
            "mixer",
            "post_attention_layernorm",
            "pre_feedforward_layernorm",
            "mlp",
            "post_feedforward_layernorm",
        ),
        "parallel": ("input_layernorm", "mixer", "post_attention_layernorm", "mlp"),
        "parallel_shared": ("input_layernorm", "mixer", "mlp"),
    }
)
#: The parts that add a layer's own embedding of a token, of Gemma 3n and 4.
_EMBEDDING_PARTS = ("per_layer_input_gate", "per_layer_projection", "post_per_layer_input_norm")


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionConfig:
    """Attention with grouped heads, whose keys and values are rows of the KV cache."""

    part: ClassVar[MixerName] = "self_attn"

    num_heads: int  #: Query heads.
    num_kv_heads: int  #: Key heads, and as many value heads.
    head_dim: int
    scale: float  #: Factor on the products of queries and keys.
    rope: RopeConfig | None  #: None for a layer without RoPE.
    #: Size of the sliding window in positions, the current one included; 0 for full attention.
    window: int = 0
    sinks: int = 0  #: First positions of a sequence that stay visible in the window.
    soft_cap: float = 0.0  #: Scores become `cap * tanh(score / cap)`; 0 disables softcapping.
    qkv_bias: bool = False
    output_bias: bool = False
    qk_norm: QKNormKind = "none"
    #: Whether outputs are multiplied by the sigmoid of a gate, whose rows follow those of the
    #: queries in the fused matrix.
    output_gate: bool = False
    #: Whether each query head has a score that joins the denominator of its softmax, as a position
    #: whose value is zero would.
    sink_scores: bool = False
    #: Whether each head of the values has an RMSNorm without weights. Requires a norm per head.
    value_norm: bool = False
    #: Whether there is no matrix of values: they are the keys before their norm.
    values_are_keys: bool = False
    #: Whether the positions of an embedded piece, such as an image, see each other.
    sees_whole_pieces: bool = False
    #: The layer whose keys and values this one reads, with as many heads; None if it has its own.
    kv_source: int | None = None

    @property
    def num_projected_heads(self) -> int:
        """The heads of the fused matrix of queries, gates, keys and values."""
        queries = self.num_heads * (2 if self.output_gate else 1)
        if self.kv_source is not None:
            return queries

        return queries + self.num_kv_heads * (1 if self.values_are_keys else 2)

    def with_window(self, size: int, sinks: int, context: int) -> Self:
        """Return the layer with a window, unless that covers a context of `context` tokens."""
        window = size if size < context else 0
        return replace(self, window=window, sinks=sinks if window else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortConvConfig:
    """LFM 2's convolution of the last tokens, between two gates. It has no keys and values."""

    part: ClassVar[MixerName] = "conv"

    channels: int  #: As many as the hidden size.
    width: int  #: Tokens that it sees, the current one included.
    bias: bool = False

    @property
    def state_size(self) -> int:
        """The floats that a sequence keeps."""
        return (self.width - 1) * self.channels

    @property
    def input_size(self) -> int:
        """The floats of a token that the state is computed from."""
        return 3 * self.channels


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedDeltaConfig:
    """A gated delta net: a matrix per value head, which every token updates."""

    part: ClassVar[MixerName] = "linear_attn"

    num_key_heads: int
    num_value_heads: int  #: A multiple of `num_key_heads`.
    key_dim: int
    value_dim: int
    width: int  #: Tokens of the convolution before it.
    #: Value heads that share a key head: neighbors if `grouped`; if `tiled`, those that are
    #: `num_key_heads` apart, as in GGUF files.
    head_order: Literal["grouped", "tiled"] = "grouped"
    #: The form in which a checkpoint has the rate r of a decay: `log` is log(r), `negative` is -r.
    rates: Literal["log", "negative"] = "log"

    @property
    def channels(self) -> int:
        """The channels of the convolution: queries, keys and values."""
        return 2 * self.num_key_heads * self.key_dim + self.num_values

    @property
    def num_values(self) -> int:
        """The numbers that leave all heads."""
        return self.num_value_heads * self.value_dim

    @property
    def state_size(self) -> int:
        """The floats that a sequence keeps."""
        return (self.width - 1) * self.channels + self.key_dim * self.num_values

    @property
    def input_size(self) -> int:
        """The floats of a token that the state is computed from."""
        return self.channels + self.num_values + 2 * self.num_value_heads


@dataclass(frozen=True, slots=True, kw_only=True)
class MlpConfig:
    """A feed-forward layer of two matrices, or three if it has a gate."""

    intermediate_size: int
    activation: Activation = "silu"
    gated: bool = True
    bias: bool = False
    #: The fraction of the gates that is cut off, if they are distributed normally; 0 for none.
    sparsity: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertsConfig:
    """A mixture of experts: gated MLPs of which a router chooses a few for each token."""

    count: int
    per_token: int  #: Experts that the router chooses for each token.
    intermediate_size: int  #: Of one expert.
    normalize: bool  #: Whether the weights of a token's experts are scaled to sum to 1.
    shared_size: int = 0  #: Intermediate size of the shared expert; 0 if there is none.
    activation: ExpertActivation = "silu"
    bias: bool = False  #: Whether the router and the matrices of the experts have biases.
    scores: Literal["softmax", "sigmoid"] = (
        "softmax"  #: Of the router's logits; they weigh experts.
    )
    selection_bias: bool = False  #: Whether a bias is added to scores for the choice only.
    scale: float = 1.0  #: Factor on the weights of sigmoid scores.
    expert_scales: bool = False  #: Whether each expert has a factor on its weight.


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseAndExpertsConfig:
    """The sum of an MLP and a mixture of experts, whose router and experts have norms of their
    own."""

    dense: MlpConfig
    experts: ExpertsConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsConfig:
    """Several residual streams, of which a layer computes one and predicts the others (AltUp)."""

    count: int
    active: int  #: The stream that is computed.
    output_scale: bool  #: Whether the computed stream is scaled before embeddings are added.
    laurel_rank: int  #: Inner size of the matrices beside attention.


#: The layer through which the tokens of a sequence see each other.
RecurrentConfig = ShortConvConfig | GatedDeltaConfig
MixerConfig = AttentionConfig | RecurrentConfig
FeedForwardConfig = MlpConfig | ExpertsConfig | DenseAndExpertsConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerConfig:
    """The plan of one layer."""

    mixer: MixerConfig
    feed_forward: FeedForwardConfig
    norm_placement: NormPlacement = "pre"
    #: Numbers of a token's embedding for this layer, which is added last; 0 for none.
    embedding_size: int = 0
    output_scale: bool = False  #: Whether the layer's output has a stored factor.
    streams: StreamsConfig | None = None

    @property
    def parts(self) -> tuple[str, ...]:
        """The graph's names of the mixer, the feed-forward layer and the norms, in their order."""
        parts = (
            *_PARTS[self.norm_placement],
            *("altup", "laurel") * (self.streams is not None),
            *_EMBEDDING_PARTS * (self.embedding_size > 0),
            *("layer_scalar",) * self.output_scale,
        )
        return tuple(self.mixer.part if part == "mixer" else part for part in parts)
