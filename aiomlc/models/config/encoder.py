"""The config of an encoder."""

from __future__ import annotations

__all__ = ("EncoderConfig",)

from dataclasses import dataclass
from typing import Literal


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
    num_positions: int  #: Maximum number of tokens of one input.
    num_token_types: int
    layer_norm_eps: float
