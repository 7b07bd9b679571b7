"""Transcriptions by a decoder whose prompt has the recording: Qwen 3 ASR."""

from __future__ import annotations

__all__ = ("PromptedRun", "open_prompted")

import uuid
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, final

from aiomlc.api.protocol.generation_config import GenerationConfig
from aiomlc.api.protocol.transcription import TranscriptionRequest, TranscriptionSegment
from aiomlc.api.session.session import ModelSession
from aiomlc.errors import BadRequestError, EngineOverloadedError
from aiomlc.runtime.concurrency.worker_thread import run_in_worker
from aiomlc.runtime.engine.stream import DeltaStream
from aiomlc.runtime.loading.loaded_model import LoadedModel
from aiomlc.runtime.speech.asr_text import AsrText, find_language, prefill
from aiomlc.runtime.templates.render_budget import RenderBudget
from aiomlc.runtime.tokenization.tokenizer import Tokenizer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from aiomlc.runtime.audio.sources import AudioInput

_MAX_OPEN: Final = 32  # An hour of samples takes 230 MB.
_MAX_SECONDS: Final = 1200.0  # Of a part; longer recordings are divided, as by the model's authors.
_SEARCHED_SECONDS: Final = 5.0  # By which a part may be longer.
_SHARE_OF_CONTEXT: Final = 2 / 3  # Of a part; the rest is for its text.
_MIN_TOKENS: Final = 512  # Of the text of a part, at most; or as many as the part has rows.
_FRAMES_PER_SECOND: Final = 100
_WITHOUT_SPACES: Final = ("ja", "th", "yue", "zh")
#: Options by which Whisper decodes a window again.
_OF_WINDOWS: Final = (
    "condition_on_previous_text",
    "compression_ratio_threshold",
    "logprob_threshold",
    "no_speech_threshold",
)


@final
class PromptedRun:
    """One recording: its text is generated part by part, and given out token by token."""

    has_times: bool = False

    def __init__(
        self,
        session: ModelSession,
        samples: NDArray[np.float32],
        request: TranscriptionRequest,
        request_id: str,
    ) -> None:
        from aiomlc.runtime.audio.decode import SAMPLE_RATE  # Imported late, with NumPy.
        from aiomlc.runtime.speech.parts import split_recording

        assert session.model.audio is not None
        self.request_id = request_id
        self.duration: float = len(samples) / SAMPLE_RATE  #: Seconds.
        self.language: str | None = None  #: Its code; None until the model has written it.
        self._session = session
        self._audio = session.model.audio
        self._rate = SAMPLE_RATE
        self._samples = samples
        self._request = request
        self._asked = None if request.language is None else find_language(request.language)
        self._prompt = _render(session.model, request.prompt) + prefill(self._asked)
        rows = _SHARE_OF_CONTEXT * session.model.context_window
        seconds = rows / session.model.audio_rows_per_second - _SEARCHED_SECONDS
        begins = split_recording(samples, min(_MAX_SECONDS, max(1.0, seconds)), SAMPLE_RATE)
        self._parts = list(pairwise([*begins, len(samples)]))
        self._index = 0  # Of the current part.
        self._texts: list[str] = []  # Of the parts that have ended.
        self._output = AsrText(self._asked)
        self._token_ids: list[int] = []  # That no segment has yet.
        self._stream: DeltaStream | None = None
        self._separator = ""  # Between the text of the current part and that before.
        self._lead = ""  # The same, until a segment has it.

    @property
    def is_done(self) -> bool:
        """Whether all parts have ended."""
        return self._index == len(self._parts)

    @property
    def text(self) -> str:
        """The whole text, without what the model repeated without end."""
        return "".join(self._texts).strip()

    async def next_segments(self) -> list[TranscriptionSegment]:
        """Return the text of the next tokens; there may be none.

        If the call is cancelled, the next one continues.

        Raises:
            PromptTooLongError: If the prompt and the recording do not fit the context.
            EngineError: If the engine was closed, or failed.
            RequestFailedError: If the tower failed.
        """
        if self._stream is None:
            self._stream = await self._open_part()
        try:
            delta = await self._stream.__anext__()
        except StopAsyncIteration:
            return await self._end_part()

        self._token_ids += delta.token_ids
        text = self._output.put(delta.text)
        self.language = self.language or self._output.language
        return self._segments(text)

    def cancel(self) -> None:
        """End the request. Never blocks."""
        if self._stream is not None:
            self._stream.close()

    def close(self) -> None:
        """End the request for its reader. Idempotent; a finalizer may call it in any thread."""
        self._session.open_recordings.discard(self.request_id)

    async def _open_part(self) -> DeltaStream:
        from aiomlc.runtime.audio.recording import Recording  # Imported late, with NumPy.

        begin, end = self._parts[self._index]
        recording = await run_in_worker(lambda _: Recording(self._samples[begin:end]))
        encode = partial(self._session.encode, method=Tokenizer.encode_marked)
        prompt = await self._audio.prompt(self._prompt, [recording], encode)
        model, request = self._session.model, self._request
        config = GenerationConfig(
            temperature=request.temperature[0],
            seed=request.seed,
            max_tokens=max(_MIN_TOKENS, prompt.num_embedded),
            stop_token_ids=(*model.stop_token_ids, *model.chat_stop_token_ids),
        )
        # No await from here on, so that a cancelled caller leaves no request without a reader.
        return self._session.open_stream(
            prompt, config, self.request_id, operation="text_completion"
        )

    async def _end_part(self) -> list[TranscriptionSegment]:
        """Return the rest of a part's text, and go to the next part."""
        output = self._output
        text = await run_in_worker(lambda _: output.text)
        segments = self._segments(output.finish())
        if text:
            self._texts.append(self._separator + text)
        self._stream, self._output, self._token_ids = None, AsrText(self._asked), []
        self._index += 1
        is_spaced = self.language not in _WITHOUT_SPACES
        self._separator = self._lead = " " if self._texts and is_spaced else ""
        return segments

    def _segments(self, text: str) -> list[TranscriptionSegment]:
        if not text:
            return []

        begin, end = self._parts[self._index]
        segment = TranscriptionSegment(
            id=self._index,
            seek=begin * _FRAMES_PER_SECOND // self._rate,
            start=begin / self._rate,
            end=end / self._rate,
            text=self._lead + text,
            tokens=self._token_ids,
            temperature=self._request.temperature[0],
        )
        self._token_ids, self._lead = [], ""
        return [segment]


async def open_prompted(
    session: ModelSession, audio: AudioInput, request: TranscriptionRequest, param: str
) -> PromptedRun:
    """Return the run of a validated request. What it needs is computed when it is read.

    Raises:
        BadRequestError: If the audio or a field is invalid, or not supported by such models.
        EngineOverloadedError: If too many recordings are open.
    """
    from aiomlc.runtime.audio.sources import load_audio, recordings  # Imported late, with NumPy.

    _check(request, session.model)
    request_id, others = f"transcription-{uuid.uuid4().hex}", session.open_recordings
    if len(others) >= _MAX_OPEN:
        raise EngineOverloadedError(
            f"{len(others)} recordings are open, which is the limit: read or close one first"
        )

    others.add(request_id)
    try:
        async with recordings.get():
            samples = await load_audio(audio, session.audio_limits, param)
        return await run_in_worker(partial(_start, session, samples, request, request_id))
    except BaseException:
        others.discard(request_id)
        raise


def _start(
    session: ModelSession,
    samples: NDArray[np.float32],
    request: TranscriptionRequest,
    request_id: str,
    is_cancelled: Callable[[], bool],
) -> PromptedRun:
    with RenderBudget(is_cancelled=is_cancelled).active():
        return PromptedRun(session, samples, request, request_id)


def _check(request: TranscriptionRequest, model: LoadedModel) -> None:
    if request.task != "transcribe":
        raise BadRequestError(
            f"task: the model {model.model_name} only transcribes, got {request.task!r}",
            param="task",
        )

    if request.timestamps:
        raise BadRequestError(
            f"timestamps: the text of the model {model.model_name} has no times: leave it out, or "
            "send response_format json or text to a server",
            param="timestamps",
        )

    for name in _OF_WINDOWS:
        if name in request.model_fields_set:
            raise BadRequestError(
                f"{name}: the model {model.model_name} does not hear windows one by one, which it "
                "is for: leave it out",
                param=name,
            )

    if request.language is not None:
        find_language(request.language)


def _check_context(model: LoadedModel, context: str) -> None:
    assert model.audio is not None
    if model.audio.placeholder in context:
        raise BadRequestError(
            f"prompt: contains {model.audio.placeholder!r}, which stands for the recording: "
            "remove it",
            param="prompt",
        )


def _render(model: LoadedModel, context: str) -> str:
    """Return the prompt of a recording, in which names of special tokens in `context` are marked.

    Raises:
        BadRequestError: If the model has no chat template, or it does not write the placeholder.
    """
    template = model.chat_template
    if template is None:
        raise BadRequestError(
            f"the model {model.model_name} has no chat template, which says how to ask for a "
            "transcription: add chat_template.jinja to its directory",
            param="model",
        )

    messages: list[dict[str, Any]] = [{"role": "user", "content": [{"type": "audio"}]}]
    if context:
        text = model.tokenizer.mark_special_tokens(context)
        _check_context(model, text)
        messages.insert(0, {"role": "system", "content": text})
    return template.render(messages, add_generation_prompt=True)
