"""How one layer of a decoder attends, beside the shapes that all layers share."""

from __future__ import annotations

__all__ = ("AttentionSpec", "attention_spec")

from dataclasses import dataclass

from aiomlc.models.config.decoder import DecoderConfig
from aiomlc.models.graph.rope_tables import rotations_of


@dataclass(frozen=True, slots=True)
class AttentionSpec:
    """The settings of one layer."""

    scale: float  #: Of queries times keys.
    window: int = 0  #: Positions that a row sees, its own the last; 0 is all.
    sinks: int = 0  #: First positions that the window never hides.
    soft_cap: float = 0.0  #: Scores become `cap * tanh(score / cap)`; 0 is no cap.
    #: Where its part of the decoder's `Rotations` begins, and how long it is; 0 is all.
    rotation: tuple[int, int] = (0, 0)

    @property
    def is_plain(self) -> bool:
        """Whether a cache that knows only the scale computes this."""
        return self == AttentionSpec(self.scale, sinks=self.sinks)


def attention_spec(config: DecoderConfig, layer: int) -> AttentionSpec:
    """How layer `layer` attends."""
    rotations = rotations_of(config).parts
    return AttentionSpec(
        scale=config.attention_scale or config.head_dim**-0.5,
        window=config.windows[layer] if config.windows else 0,
        sinks=config.attention_sinks,
        soft_cap=config.attn_logit_softcapping,
        rotation=rotations[layer] if rotations else (0, 0),
    )
