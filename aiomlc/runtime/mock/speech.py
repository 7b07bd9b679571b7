"""A speech model without a model, which hears scripted texts."""

from __future__ import annotations

__all__ = ("FakeSpeech", "fake_speech")

import threading
from collections.abc import Iterator, Sequence
from string import ascii_lowercase
from typing import TYPE_CHECKING, Final, final

import numpy as np
import tokenizers
import tokenizers.decoders
import tokenizers.models
import tokenizers.pre_tokenizers

from aiomlc.runtime.audio.limits import AudioLimits
from aiomlc.runtime.loading.loaded_model import LoadedEncoder
from aiomlc.runtime.native.speech import SlotTokens
from aiomlc.runtime.speech.batcher import SpeechBatcher
from aiomlc.runtime.speech.features import LogMel
from aiomlc.runtime.speech.generation import SpeechTokens
from aiomlc.runtime.speech.transcriber import Transcriber
from aiomlc.runtime.tokenization.tokenizer import Tokenizer

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LETTERS: Final = ascii_lowercase + " .,"
_WINDOW_FRAMES: Final = 200  # Two seconds.
_MAX_TOKENS: Final = 64
_NUM_MELS: Final = 4
_SURE: Final = 20.0  # The logit of the next token; the others are its negative.

_END: Final = len(_LETTERS)
_TOKENS: Final = SpeechTokens(
    end=_END,
    start=_END + 1,
    languages={"en": _END + 2, "de": _END + 3},
    tasks={"translate": _END + 4, "transcribe": _END + 5},
    previous=_END + 6,
    no_timestamps=_END + 8,
)
_VOCAB_SIZE: Final = _TOKENS.first_timestamp + _WINDOW_FRAMES // 2 + 1


@final
class FakeSpeech:
    """A model that hears one text in each window; with timestamps, from its begin to its end.

    Args:
        texts: What it hears, in the order in which windows are encoded: small letters, spaces,
            full stops and commas. After the last one, it hears nothing.
        num_slots: Windows that are decoded at the same time.
        language: The code of what it detects.
        hand_stepped: Whether each step waits for a call to `allow`.
        failure: The exception that the next step raises, or None.
    """

    def __init__(
        self,
        texts: Sequence[str],
        *,
        num_slots: int = 2,
        language: str = "en",
        hand_stepped: bool = False,
        failure: Exception | None = None,
    ) -> None:
        self.num_slots: int = num_slots
        self.failure = failure
        self.batches: list[list[SlotTokens]] = []  #: The tokens of each step.
        self._texts = iter(texts)
        self._language = _TOKENS.languages[language]
        self._heard: dict[int, str] = {}  # By slot.
        self._ids: dict[int, list[int]] = {}
        self._gate = threading.Semaphore(0) if hand_stepped else None
        self._step_started = threading.Condition()

    def encode(self, window: NDArray[np.float32], slot: int) -> None:
        """Hear the next text."""
        self._heard[slot] = next(self._texts, "")
        self._ids[slot] = []

    def decode(self, tokens: Sequence[SlotTokens]) -> NDArray[np.float32]:
        """Return logits of which one is large."""
        with self._step_started:
            self.batches.append(list(tokens))
            self._step_started.notify_all()

        if self._gate is not None:
            self._gate.acquire()

        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure

        chosen = [token for each in tokens for token in self._next_tokens(each)]
        logits = np.full((len(chosen), _VOCAB_SIZE), -_SURE, np.float32)
        logits[np.arange(len(chosen)), chosen] = _SURE
        return logits

    def allow(self, steps: int = 1) -> None:
        """Let this many steps end."""
        if self._gate is not None:
            self._gate.release(steps)

    def wait_for_steps(self, count: int) -> None:
        """Wait until this many steps have started."""
        with self._step_started:
            self._step_started.wait_for(lambda: len(self.batches) >= count)

    def _next_tokens(self, tokens: SlotTokens) -> Iterator[int]:
        stored = [*self._ids[tokens.slot][: tokens.start], *tokens.ids]
        self._ids[tokens.slot] = stored
        for index in tokens.picked:
            before = stored[: tokens.start + index + 1]
            if before[-1] == _TOKENS.start:
                yield self._language
                continue

            after = before[before.index(_TOKENS.start) + 1 :]
            header = {*_TOKENS.languages.values(), *_TOKENS.tasks.values(), _TOKENS.no_timestamps}
            count = sum(token not in header for token in after)
            yield self._script(tokens.slot, with_times=_TOKENS.no_timestamps not in after)[count]

    def _script(self, slot: int, *, with_times: bool) -> list[int]:
        letters = [_LETTERS.index(letter) for letter in self._heard[slot]]
        if with_times:
            first = _TOKENS.first_timestamp
            letters = [first, *letters, first + _WINDOW_FRAMES // 2]
        return [*letters, _TOKENS.end]


def fake_speech(speech: FakeSpeech) -> LoadedEncoder:
    """Return a loaded speech model with windows of two seconds."""
    names = _LETTERS.replace(" ", "\u0120")  # What byte-level tokenizers write for a space.
    vocabulary = {letter: index for index, letter in enumerate(names)}
    backend = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, []))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    return LoadedEncoder(
        Transcriber(
            batcher=SpeechBatcher(speech),
            tokenizer=Tokenizer(backend),
            features=LogMel(_NUM_MELS),
            tokens=_TOKENS,
            limits=AudioLimits(max_seconds=60),
            model_name="fake",
            window_frames=_WINDOW_FRAMES,
            max_tokens=_MAX_TOKENS,
        )
    )
