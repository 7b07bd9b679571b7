"""An encoder without a model, whose hidden states reveal its inputs."""

from __future__ import annotations

__all__ = ("FakeEncoder", "fake_encoder")

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np
import tokenizers
import tokenizers.models
import tokenizers.pre_tokenizers

from aiomlc.runtime.embedding.activation import Activation
from aiomlc.runtime.embedding.batcher import EncoderBatcher
from aiomlc.runtime.embedding.dense import DenseLayer
from aiomlc.runtime.embedding.embedder import Classifier, Embedder
from aiomlc.runtime.embedding.encoder_tokenizer import EncoderTokenizer
from aiomlc.runtime.embedding.token_heads import TokenHeads
from aiomlc.runtime.loading.loaded_model import LoadedEncoder
from aiomlc.runtime.native.encoder import EncoderInput

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MAX_TOKENS = 16
_TOKEN_HEADS = TokenHeads(
    DenseLayer(np.array([[1, 0, 0]], np.float32), np.array([-2], np.float32), has_tanh=False),
    DenseLayer(np.eye(2, 3, dtype=np.float32), None, has_tanh=False),
)


@final
class FakeEncoder:
    """An encoder whose hidden state of a token is `[token id, position, 1]`.

    With labels, it is a classifier: the logit of label `j` is `j` more than a hundredth of the sum
    of all token ids.

    Args:
        labels: The names of the labels of a classifier; empty for an encoder that embeds.
        has_token_heads: Whether tokens have a weight, 2 less than their id, and a vector,
            `[token id, position]`.
        hand_stepped: Whether each batch waits for a call to `allow`, so that a test controls
            when it ends.
        failure: The exception that the next batch raises, or None.
    """

    def __init__(
        self,
        *,
        labels: Sequence[str] = (),
        has_token_heads: bool = False,
        hand_stepped: bool = False,
        failure: Exception | None = None,
    ) -> None:
        self.labels: tuple[str, ...] = tuple(labels)
        self.has_token_heads = has_token_heads
        self.batches: list[list[list[int]]] = []  #: The inputs of each forward pass.
        self.failure = failure
        self._gate = threading.Semaphore(0) if hand_stepped else None
        self._batch_started = threading.Condition()

    def forward(self, inputs: Sequence[EncoderInput]) -> NDArray[np.float32]:
        """Return the hidden states of all inputs: float32 `[total tokens, 3]`; of a classifier the
        logits, `[inputs, labels]`."""
        token_ids = [list(each.ids) for each in inputs]
        with self._batch_started:
            self.batches.append(token_ids)
            self._batch_started.notify_all()

        if self._gate is not None:
            self._gate.acquire()

        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure

        if self.labels:
            sums = np.array([sum(ids) / 100 for ids in token_ids], np.float32)
            offsets = np.arange(len(self.labels), dtype=np.float32)
            return (sums[:, None] + offsets).astype(np.float32)

        rows = [
            (token_id, position, 1) for ids in token_ids for position, token_id in enumerate(ids)
        ]
        return np.array(rows, np.float32)

    def allow(self, batches: int = 1) -> None:
        """Let this many batches end."""
        if self._gate is not None:
            self._gate.release(batches)

    def wait_for_batches(self, count: int) -> None:
        """Wait until this many batches have started."""
        with self._batch_started:
            self._batch_started.wait_for(lambda: len(self.batches) >= count)


def fake_encoder(encoder: FakeEncoder, *, batch_tokens: int = 64) -> LoadedEncoder:
    """Return a loaded encoder with letters as tokens and at most 16 tokens for each input."""
    letters = {chr(ord("a") + index): index for index in range(26)}
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel(letters, unk_token="a"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
    common: dict[str, Any] = {
        "batcher": EncoderBatcher(
            encoder, rows_per_token=not encoder.labels, batch_tokens=batch_tokens
        ),
        "tokenizer": EncoderTokenizer(backend.to_str(), _MAX_TOKENS),
        "model_name": "fake",
        "max_tokens": _MAX_TOKENS,
        "vocab_size": 26,
    }
    if not encoder.labels:
        heads = _TOKEN_HEADS if encoder.has_token_heads else TokenHeads()
        return LoadedEncoder(Embedder(**common, size=3, prompts={"query": "q"}, heads=heads))

    activation: Activation = "sigmoid" if len(encoder.labels) == 1 else "softmax"
    return LoadedEncoder(Classifier(**common, labels=encoder.labels, activation=activation))
