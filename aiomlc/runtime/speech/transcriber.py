"""A model that transcribes speech: recordings of any length, window by window."""

from __future__ import annotations

__all__ = ("SpeechOptions", "SpeechSegment", "SpeechTask", "Transcriber", "Transcription")

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal, final

import numpy as np

from aiomlc.errors import BadRequestError
from aiomlc.runtime.audio.limits import AudioLimits
from aiomlc.runtime.concurrency.worker_thread import run_in_worker
from aiomlc.runtime.native.speech import SlotTokens
from aiomlc.runtime.speech.batcher import SpeechBatcher
from aiomlc.runtime.speech.features import LogMel
from aiomlc.runtime.speech.generation import SpeechTokens
from aiomlc.runtime.speech.rules import TokenRules
from aiomlc.runtime.speech.segments import FRAMES_PER_SECOND, TokenSegment, split_window
from aiomlc.runtime.speech.window import DecodedWindow, Thresholds, WindowDecoder
from aiomlc.runtime.tokenization.tokenizer import Tokenizer

if TYPE_CHECKING:
    from numpy.typing import NDArray

SpeechTask = Literal["transcribe", "translate"]
# A text at a higher temperature says little about what comes next.
_MAX_TRUSTED_TEMPERATURE = 0.5


class _Abandoned(Exception):  # noqa: N818 - not an error: nothing waits for the features.
    """The caller of a worker thread was cancelled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeechOptions:
    """The settings of a transcription."""

    task: SpeechTask = "transcribe"
    language: str | None = None  #: A code of the model; None detects it.
    prompt: str = ""  #: Text that came before, or shows style and names.
    timestamps: bool = False  #: Whether segments have times; longer audio than a window always has.
    #: The temperatures that are tried one after the other while a text seems wrong.
    temperatures: tuple[float, ...] = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    thresholds: Thresholds = field(default_factory=Thresholds)
    #: Whether the text of a window continues that of the windows before.
    condition_on_previous: bool = True
    seed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeechSegment:
    """A part of the audio with its text."""

    index: int
    start: float  #: Seconds from the begin of the audio.
    end: float
    text: str
    token_ids: tuple[int, ...]  #: With timestamps.
    seek: int  #: The frame (10 ms) at which its window begins.
    window: DecodedWindow = field(repr=False)  #: The window that it is a part of.


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Transcriber:
    """A speech model that is ready to serve. It belongs to one event loop."""

    tasks: ClassVar[tuple[Literal["transcription"]]] = ("transcription",)

    batcher: SpeechBatcher
    tokenizer: Tokenizer
    features: LogMel
    tokens: SpeechTokens
    limits: AudioLimits
    model_name: str
    window_frames: int
    max_tokens: int  #: Of a window, prompt included.

    def close(self) -> None:
        """Release the model; waiting callers get `EngineClosedError`. Thread-safe."""
        self.batcher.close()

    def check(self, options: SpeechOptions) -> None:
        """Require that the model has the language and the task.

        Raises:
            BadRequestError: If it has not; `param` names the field.
        """
        languages = self.tokens.languages
        if options.language is not None and options.language not in (languages or ("en",)):
            allowed = ", ".join(languages) if languages else "en, the only one of this model"
            raise BadRequestError(
                f"language: must be one of {allowed}, got {options.language!r}", param="language"
            )

        if options.task != "transcribe" and options.task not in self.tokens.tasks:
            raise BadRequestError(
                f"task: this model only transcribes, got {options.task!r}: open a multilingual "
                "model",
                param="task",
            )

    async def start(self, samples: NDArray[np.float32], options: SpeechOptions) -> Transcription:
        """Return a transcription that computes its windows when they are asked for.

        Args:
            samples: float32 `[samples]` at 16 kHz.
            options: The settings.

        Raises:
            BadRequestError: If the model has not the language or the task.
        """
        self.check(options)
        frames, prompt = await run_in_worker(
            lambda is_cancelled: (
                self._frames(samples, is_cancelled),
                self._encode_prompt(options.prompt),
            )
        )
        return Transcription(self, frames, len(samples), options, prompt)

    def _encode_prompt(self, prompt: str) -> list[int]:
        text = prompt.strip()
        return self.tokenizer.encode_split(f" {text}") if text else []

    def _frames(
        self, samples: NDArray[np.float32], is_cancelled: Callable[[], bool]
    ) -> NDArray[np.float32]:
        def check() -> None:
            if is_cancelled():
                raise _Abandoned

        # A short recording is followed by silence, a long one by zeros in its last window.
        missing = self.window_frames * self.features.hop - len(samples)
        if missing > 0:
            samples = np.pad(samples, (0, missing))
        return self.features.features(samples, check)


@final
class Transcription:
    """One recording: its windows are decoded one after the other, each from where the text of the
    one before ends."""

    def __init__(
        self,
        model: Transcriber,
        frames: NDArray[np.float32],
        num_samples: int,
        options: SpeechOptions,
        prompt: Sequence[int],
    ) -> None:
        hop = model.features.hop
        self.language: str | None = options.language  #: Its code; None until it is detected.
        self.duration: float = num_samples / model.features.sample_rate  #: Seconds.
        self._model = model
        self._frames = frames
        self._num_frames = max(1, num_samples // hop)
        self._options = options
        self._with_timestamps = options.timestamps or self._num_frames > model.window_frames
        self._rules = TokenRules(model.tokens, with_timestamps=self._with_timestamps)
        self._random = np.random.default_rng(options.seed)
        self._seek = 0
        self._num_segments = 0
        self._prompt = prompt
        self._history = list(prompt)  # The tokens of the segments so far.
        self._continues = options.condition_on_previous
        if self.language is None and not model.tokens.languages:
            self.language = "en"

    @property
    def is_done(self) -> bool:
        """Whether all windows were decoded."""
        return self._seek >= self._num_frames

    async def next_window(self) -> list[SpeechSegment]:
        """Decode the next window, and return its segments; there may be none.

        If the call is cancelled, the next one decodes the same window.

        Raises:
            EngineClosedError: If the model was closed.
            RequestFailedError: If the model failed.
        """
        model, options, begin = self._model, self._options, self._seek
        async with model.batcher.window(self._window()) as slot:
            if self.language is None:
                self.language = await self._detect_language(slot)
            decoder = WindowDecoder(
                model.batcher,
                slot,
                self._rules,
                previous=self._previous(),
                task=self._task_tokens(),
                max_tokens=model.max_tokens,
            )
            window = await decoder.decode(
                options.temperatures, options.thresholds, self._random, self._text
            )

        num_frames = min(model.window_frames, self._num_frames - begin)
        if window.is_silence(options.thresholds):
            self._seek += num_frames
            return []

        split = split_window(window.token_ids, model.tokens.first_timestamp, begin, num_frames)
        self._seek += split.num_frames
        self._continues = (
            options.condition_on_previous and window.temperature < _MAX_TRUSTED_TEMPERATURE
        )
        for segment in split.segments:
            self._history += segment.token_ids
        return [
            self._segment(segment, text, begin, window)
            for segment in split.segments
            if (text := self._text(segment.token_ids)).strip()
        ]

    def _segment(
        self, segment: TokenSegment, text: str, seek: int, window: DecodedWindow
    ) -> SpeechSegment:
        index = self._num_segments
        self._num_segments += 1
        return SpeechSegment(
            index=index,
            start=min(segment.begin / FRAMES_PER_SECOND, self.duration),
            end=min(segment.end / FRAMES_PER_SECOND, self.duration),
            text=text,
            token_ids=segment.token_ids,
            seek=seek,
            window=window,
        )

    def _window(self) -> NDArray[np.float32]:
        window = self._frames[self._seek : self._seek + self._model.window_frames]
        missing = self._model.window_frames - len(window)
        return np.pad(window, ((0, missing), (0, 0))) if missing else window

    async def _detect_language(self, slot: int) -> str:
        tokens = SlotTokens(slot, [self._model.tokens.start], 0, (0,))
        rules = self._rules
        return await self._model.batcher.decode(tokens, lambda logits: rules.language(logits[0]))

    def _previous(self) -> list[int]:
        """Return the tokens of what was said before, of which half of the context is left."""
        begin = self._model.tokens.previous
        history = self._history if self._continues else self._prompt
        if not history or begin is None:
            return []

        return [begin, *history[-(self._model.max_tokens // 2 - 1) :]]

    def _task_tokens(self) -> list[int]:
        """Return the tokens that say what to do, of which the start is the first."""
        tokens = self._model.tokens
        prompt = [tokens.start]
        if tokens.languages and self.language is not None:
            prompt.append(tokens.languages[self.language])
        if self._options.task in tokens.tasks:
            prompt.append(tokens.tasks[self._options.task])
        if not self._with_timestamps:
            prompt.append(tokens.no_timestamps)
        return prompt

    def _text(self, token_ids: Sequence[int]) -> str:
        end = self._model.tokens.end  # Special tokens and timestamps are after those of text.
        return self._model.tokenizer.decode([token for token in token_ids if token < end])
