"""The attention settings of one layer of a decoder, beyond the shapes that all layers share."""

from __future__ import annotations

__all__ = ("AttentionSpec", "attention_spec")

from dataclasses import dataclass

from aiomlc.models.config.decoder import DecoderConfig
from aiomlc.models.graph.rope_table import rope_table


@dataclass(frozen=True, slots=True)
class AttentionSpec:
    """The attention settings of one layer."""

    scale: float  #: Factor on the products of queries and keys.
    window: int = 0  #: Size in positions, the current one included; 0 for full attention.
    sinks: int = 0  #: First positions that stay visible in every window.
    soft_cap: float = 0.0  #: Scores become `cap * tanh(score / cap)`; 0 disables softcapping.
    #: Offset and length of the layer's slice of the decoder's `RopeTable`; length 0 is all of it.
    rope_slice: tuple[int, int] = (0, 0)

    @property
    def is_plain(self) -> bool:
        """Whether TVM's own cache attention supports the settings; it has a scale only."""
        return self == AttentionSpec(self.scale, sinks=self.sinks)


def attention_spec(config: DecoderConfig, layer: int) -> AttentionSpec:
    """Return the attention settings of layer `layer`."""
    rope_slices = rope_table(config).layer_slices
    return AttentionSpec(
        scale=config.attention_scale or config.head_dim**-0.5,
        window=config.windows[layer] if config.windows else 0,
        sinks=config.attention_sinks,
        soft_cap=config.attn_logit_softcapping,
        rope_slice=rope_slices[layer] if rope_slices else (0, 0),
    )
