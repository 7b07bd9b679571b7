"""The config of an encoder."""

from __future__ import annotations

__all__ = ("ClassifierConfig", "EncoderConfig")

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassifierConfig:
    """The layers of a sequence classifier after the encoder, under their names in checkpoints."""

    num_labels: int
    dense: str  #: The matrix between encoder and output.
    output: str  #: The matrix whose outputs are the labels' logits.


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderConfig:
    """The sizes that determine an encoder's graph and its parameters."""

    kind: Literal["encoder"] = "encoder"
    model_type: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_positions: int  #: Rows of the table of positions.
    position_offset: int = 0  #: The row of an input's first token.
    num_token_types: int
    layer_norm_eps: float
    #: What a Hugging Face directory has before the names of the encoder's tensors.
    hf_prefix: str = ""
    classifier: ClassifierConfig | None = None  #: None for an encoder that embeds.

    @property
    def max_tokens(self) -> int:
        """The maximum number of tokens of one input."""
        return self.num_positions - self.position_offset
