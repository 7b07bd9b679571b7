"""The plan of a decoder's layers: what mixes the tokens of a layer, its feed-forward layer, and the
norms around them.

Graph, parameters, KV cache and memory plan all follow this plan. A layer of another kind, such as a
recurrent one, is another class of `MixerConfig`.
"""

from __future__ import annotations

__all__ = (
    "AttentionConfig",
    "ExpertsConfig",
    "FeedForwardConfig",
    "LayerConfig",
    "MixerConfig",
    "MlpConfig",
    "NormPlacement",
    "QKNormKind",
)

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal, Self

from aiomlc.models.config.activation import Activation
from aiomlc.models.config.rope import RopeConfig

#: The hidden states that a block norms. `pre`: the inputs of attention and of the feed-forward
#: layer. `post`: their outputs. `sandwich`: inputs and outputs. `parallel` and `parallel_shared`:
#: both layers read the same hidden state, through a norm each or through one norm.
NormPlacement = Literal["pre", "post", "sandwich", "parallel", "parallel_shared"]
#: Whether queries and keys have an RMSNorm for each head, or one over all heads.
QKNormKind = Literal["none", "per_head", "full_width"]

_PARTS: Mapping[NormPlacement, tuple[str, ...]] = MappingProxyType(
    {
        "pre": ("input_layernorm", "self_attn", "post_attention_layernorm", "mlp"),
        "post": ("self_attn", "post_attention_layernorm", "mlp", "post_feedforward_layernorm"),
        "sandwich": (
            "input_layernorm",
            "self_attn",
            "post_attention_layernorm",
            "pre_feedforward_layernorm",
            "mlp",
            "post_feedforward_layernorm",
        ),
        "parallel": ("input_layernorm", "self_attn", "post_attention_layernorm", "mlp"),
        "parallel_shared": ("input_layernorm", "self_attn", "mlp"),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionConfig:
    """Attention with grouped heads, whose keys and values are rows of the KV cache."""

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

    def with_window(self, size: int, sinks: int, context: int) -> Self:
        """Return the layer with a window, unless that covers a context of `context` tokens."""
        window = size if size < context else 0
        return replace(self, window=window, sinks=sinks if window else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class MlpConfig:
    """A feed-forward layer of two matrices, or three if it has a gate."""

    intermediate_size: int
    activation: Activation = "silu"
    gated: bool = True
    bias: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertsConfig:
    """A mixture of experts: gated MLPs of which a router chooses a few for each token."""

    count: int
    per_token: int  #: Experts that the router chooses for each token.
    intermediate_size: int  #: Of one expert.
    normalize: bool  #: Whether the weights of a token's experts are scaled to sum to 1.
    shared_size: int = 0  #: Intermediate size of the shared expert; 0 if there is none.


#: The layer through which the tokens of a sequence see each other.
MixerConfig = AttentionConfig
FeedForwardConfig = MlpConfig | ExpertsConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerConfig:
    """The plan of one layer."""

    mixer: MixerConfig
    feed_forward: FeedForwardConfig
    norm_placement: NormPlacement = "pre"

    @property
    def parts(self) -> tuple[str, ...]:
        """The graph's names of the mixer, the feed-forward layer and the norms, in their order."""
        return _PARTS[self.norm_placement]
