"""The tensors of one step that layers share, beside the hidden states."""

from __future__ import annotations

__all__ = ("Step",)

from dataclasses import dataclass, field

from tvm.relax.frontend import nn


@dataclass(frozen=True, slots=True)
class Step:
    """The inputs of a step, and what its layers leave for later ones."""

    kv: nn.Object  #: The KV cache.
    #: `[n, hidden + layers * size]`: hidden states, then each layer's embeddings of the tokens.
    embedded: nn.Tensor
    #: By layer: queries, keys and values `[n, heads, head_dim]`, before they are rotated.
    qkv: dict[int, nn.Tensor] = field(default_factory=dict)
