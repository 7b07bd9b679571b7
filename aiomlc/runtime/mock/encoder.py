"""An encoder without a model: a token's vector is its number, its place and a one."""

from __future__ import annotations

__all__ = ("FakeEncoder", "fake_encoder")

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, final

import numpy as np
import tokenizers
import tokenizers.models
import tokenizers.pre_tokenizers

from aiomlc.runtime.embedding.embedder import Embedder
from aiomlc.runtime.embedding.encoder_core import EncoderCore
from aiomlc.runtime.embedding.encoder_tokenizer import EncoderTokenizer
from aiomlc.runtime.loading.loaded_model import LoadedEncoder

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MAX_TOKENS = 16


@final
class FakeEncoder:
    """An encoder whose answers can be told from its inputs.

    The states of a text of n tokens are n rows `[token id, position, 1]`.

    Args:
        hand_stepped: A batch waits for a call of `allow`, so that a test decides when it ends.
        failure: What the next batch raises.
    """

    def __init__(self, *, hand_stepped: bool = False, failure: Exception | None = None) -> None:
        self.batches: list[list[list[int]]] = []  #: The texts of each forward pass.
        self.failure = failure
        self._gate = threading.Semaphore(0) if hand_stepped else None
        self._begun = threading.Condition()

    def forward(self, texts: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """float32 `[tokens of all texts, 3]`."""
        with self._begun:
            self.batches.append([list(text) for text in texts])
            self._begun.notify_all()

        if self._gate is not None:
            self._gate.acquire()

        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure

        rows = [(token, place, 1) for text in texts for place, token in enumerate(text)]
        return np.array(rows, np.float32)

    def allow(self, batches: int = 1) -> None:
        """Let so many batches end."""
        if self._gate is not None:
            self._gate.release(batches)

    def wait_for_batches(self, count: int) -> None:
        """Block until so many batches have begun."""
        with self._begun:
            self._begun.wait_for(lambda: len(self.batches) >= count)


def fake_encoder(encoder: FakeEncoder, *, batch_tokens: int = 64) -> LoadedEncoder:
    """A loaded encoder around a double: letters for tokens, none special, at most 16 of them."""
    letters = {chr(ord("a") + index): index for index in range(26)}
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel(letters, unk_token="a"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
    embedder = Embedder(
        encoder,
        EncoderTokenizer(backend.to_str(), _MAX_TOKENS),
        model_name="fake",
        max_tokens=_MAX_TOKENS,
        vocab_size=26,
        hidden_size=3,
        batch_tokens=batch_tokens,
    )
    return LoadedEncoder(EncoderCore(embedder), embedder)
