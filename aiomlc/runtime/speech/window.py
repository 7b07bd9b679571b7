"""The decoding of one window: token by token, again at a higher temperature if that went wrong."""

from __future__ import annotations

__all__ = ("DecodedWindow", "Thresholds", "WindowDecoder")

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, final

import numpy as np

from aiomlc.runtime.native.speech import SlotTokens
from aiomlc.runtime.speech.batcher import SpeechBatcher
from aiomlc.runtime.speech.rules import TokenRules

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """When a text is taken for wrong; None for never. The defaults are Whisper's."""

    compression_ratio: float | None = 2.4  #: A text that compresses better repeats itself.
    log_prob: float | None = -1.0  #: A text with a lower average is unlikely.
    no_speech: float | None = (
        0.6  #: An unlikely text with a higher probability of silence is dropped.
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedWindow:
    """The tokens of a window, and how sure the model was of them."""

    token_ids: list[int]  #: Without prompt and end.
    temperature: float
    avg_logprob: float  #: Of the tokens and the end.
    compression_ratio: float  #: Of the text.
    no_speech_prob: float

    def is_silence(self, limits: Thresholds) -> bool:
        """Whether nothing was said."""
        if limits.no_speech is None or self.no_speech_prob <= limits.no_speech:
            return False

        return limits.log_prob is None or self.avg_logprob < limits.log_prob

    def is_wrong(self, limits: Thresholds) -> bool:
        """Whether another temperature may give a better text."""
        if self.is_silence(limits):
            return False

        largest, least = limits.compression_ratio, limits.log_prob
        repeats = largest is not None and self.compression_ratio > largest
        return repeats or (least is not None and self.avg_logprob < least)


class _Choice(NamedTuple):
    """The next token."""

    token: int
    logprob: float
    no_speech_prob: float  # Of the first choice only.


@final
class WindowDecoder:
    """Decodes the window in a slot.

    Args:
        batcher: The model.
        slot: The slot.
        rules: What may be generated.
        previous: The tokens of what was said before.
        task: The tokens after them that say what to do, of which the start is the first.
        max_tokens: The maximum number of tokens, with these.
    """

    def __init__(
        self,
        batcher: SpeechBatcher,
        slot: int,
        rules: TokenRules,
        *,
        previous: Sequence[int],
        task: Sequence[int],
        max_tokens: int,
    ) -> None:
        self._batcher = batcher
        self._slot = slot
        self._rules = rules
        self._prompt = [*previous, *task]
        self._start = len(previous)
        self._max_tokens = max_tokens
        self._end = rules.tokens.end
        self._no_speech = rules.tokens.no_speech

    async def decode(
        self,
        temperatures: Sequence[float],
        limits: Thresholds,
        random: np.random.Generator,
        text_of: Callable[[Sequence[int]], str],
    ) -> DecodedWindow:
        """Return the text at the first temperature at which it is not wrong, or at the last one.

        Raises:
            EngineClosedError: If the model was closed.
            RequestFailedError: If the model failed.
        """
        for temperature in temperatures[:-1]:
            window = await self._decode_at(temperature, random, text_of)
            if not window.is_wrong(limits):
                return window

        return await self._decode_at(temperatures[-1], random, text_of)

    async def _decode_at(
        self,
        temperature: float,
        random: np.random.Generator,
        text_of: Callable[[Sequence[int]], str],
    ) -> DecodedWindow:
        generated: list[int] = []

        def choose(logits: NDArray[np.float32]) -> _Choice:
            allowed = self._rules.apply(logits[-1], generated)
            logprobs = _log_softmax(allowed)
            token = _sample(logprobs, temperature, random)
            silence = 0.0 if generated else float(np.exp(_log_softmax(logits[0])[self._no_speech]))
            return _Choice(token, float(logprobs[token]), silence)

        last = len(self._prompt) - 1
        tokens = SlotTokens(self._slot, self._prompt, 0, (self._start, last))
        choice = first = await self._batcher.decode(tokens, choose)
        total, count = choice.logprob, 1
        while choice.token != self._end:
            generated.append(choice.token)
            position = last + len(generated)
            if position + 1 >= self._max_tokens:
                break

            tokens = SlotTokens(self._slot, [choice.token], position, (0,))
            choice = await self._batcher.decode(tokens, choose)
            total, count = total + choice.logprob, count + 1
        return DecodedWindow(
            token_ids=generated,
            temperature=temperature,
            avg_logprob=total / count,
            compression_ratio=_compression_ratio(text_of(generated)),
            no_speech_prob=first.no_speech_prob,
        )


def _log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    shifted: NDArray[np.float32] = logits - logits.max()
    result: NDArray[np.float32] = shifted - np.float32(
        np.log(np.exp(shifted).sum(dtype=np.float64))
    )
    return result


def _sample(logprobs: NDArray[np.float32], temperature: float, random: np.random.Generator) -> int:
    if temperature == 0.0:
        return int(np.argmax(logprobs))

    # The largest of scores with Gumbel noise has the probability of the softmax.
    noise = random.gumbel(size=len(logprobs))
    return int(np.argmax(logprobs / temperature + noise))


def _compression_ratio(text: str) -> float:
    data = text.encode()
    return len(data) / len(zlib.compress(data))
