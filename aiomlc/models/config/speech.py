"""The config of a model that transcribes speech."""

from __future__ import annotations

__all__ = ("SpeechConfig", "SpeechStackConfig")

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeechStackConfig:
    """The layers of the encoder, or of the decoder."""

    num_layers: int
    num_heads: int
    intermediate_size: int
    num_positions: int  #: Rows of the table of positions.


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeechConfig:
    """The sizes of an encoder that reads log-mel frames, and of a decoder that attends to it.

    The encoder always reads a window: two frames for each of its positions. Norms are before the
    layers, and matrices of keys have no bias, as in Whisper.
    """

    kind: Literal["speech"] = "speech"
    model_type: str
    vocab_size: int
    hidden_size: int
    num_mels: int  #: Log-mel values of a frame.
    encoder: SpeechStackConfig
    decoder: SpeechStackConfig
    norm_eps: float = 1e-5

    @property
    def num_hidden_layers(self) -> int:
        """The layers of encoder and decoder."""
        return self.encoder.num_layers + self.decoder.num_layers

    @property
    def max_tokens(self) -> int:
        """The maximum number of tokens of a window: prompt and text."""
        return self.decoder.num_positions

    @property
    def window_frames(self) -> int:
        """The log-mel frames that the encoder reads."""
        return 2 * self.encoder.num_positions
