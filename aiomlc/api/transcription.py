"""Transcriptions of speech: the whole text of a recording, or its segments as they are heard."""

from __future__ import annotations

__all__ = (
    "TranscriptionOptions",
    "TranscriptionStream",
    "collect",
    "open_transcription",
    "transcribe",
)

import uuid
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    Protocol,
    TypeAlias,
    TypedDict,
    cast,
    final,
)

from anyio import BusyResourceError
from anyio.lowlevel import checkpoint
from anyio.streams.memory import MemoryObjectStreamStatistics

from aiomlc.api.protocol.transcription import (
    Transcription,
    TranscriptionRequest,
    TranscriptionSegment,
    TranscriptionUsage,
)
from aiomlc.api.session.session import SessionProvider
from aiomlc.api.streams.chunk_stream import ChunkStream
from aiomlc.errors import RequestAbortedError
from aiomlc.runtime.embedding.encoder_engine import OpenRequest
from aiomlc.validation.parameter import Doc

if TYPE_CHECKING:
    from aiomlc.runtime.audio.sources import AudioInput
    from aiomlc.runtime.speech.transcriber import SpeechOptions, SpeechSegment, Transcriber

_Task: TypeAlias = Literal["transcribe", "translate"]


class TranscriptionOptions(TypedDict, total=False):
    """The optional fields of a request to transcribe audio."""

    model: Annotated[str | None, Doc("A label without effect.")]
    task: Annotated[_Task, Doc('"translate" writes English ("transcribe").')]
    language: Annotated[str | None, Doc("The code of the spoken language (detected).")]
    prompt: Annotated[str, Doc("Text before the audio, which shows names and style.")]
    temperature: Annotated[
        float | Sequence[float] | None,
        Doc("Of the first attempt, or of all attempts (0, then up to 1 while a text seems wrong)."),
    ]
    timestamps: Annotated[bool, Doc("Whether short audio has segments with times (False).")]
    condition_on_previous_text: Annotated[bool, Doc("Whether a window knows the text before it.")]
    compression_ratio_threshold: Annotated[
        float | None, Doc("Above it, a text repeats itself and is wrong (2.4).")
    ]
    logprob_threshold: Annotated[float | None, Doc("Below it, a text is unlikely (-1).")]
    no_speech_threshold: Annotated[
        float | None, Doc("Above it, an unlikely text is silence (0.6).")
    ]
    seed: Annotated[int | None, Doc("Of temperatures above 0 (random).")]
    extra_body: Annotated[Mapping[str, Any] | None, Doc("Further fields, merged with the others.")]


class _Run(Protocol):
    """One recording: the runtime's `Transcription`, whose module loads NumPy."""

    duration: float

    @property
    def language(self) -> str | None: ...
    @property
    def is_done(self) -> bool: ...
    async def next_window(self) -> Sequence[object]: ...


@final
class TranscriptionStream(ChunkStream[list[TranscriptionSegment], TranscriptionSegment]):
    """The segments of one recording, as an async iterator for one task.

    Reading computes: a window is decoded when its first segment is asked for. So a stream that is
    not read takes no time, and its text is final, never corrected. Closing and errors are as in
    `ChunkStream`.
    """

    def __init__(self, run: _Run, request: OpenRequest, owner: object, task: _Task) -> None:
        super().__init__(request.request_id, owner)
        self.duration: float = run.duration  #: Of the audio, in seconds.
        self.task: _Task = task
        self._run = run
        self._request = request
        self._is_reading = False

    def __repr__(self) -> str:
        return f"<TranscriptionStream {self.request_id!r}>"

    def __del__(self) -> None:
        if hasattr(self, "_request"):  # Else an interrupt ended the constructor.
            self._request.close()

    @property
    def language(self) -> str | None:
        """The code of the spoken language; None until it is detected."""
        return self._run.language

    def _next_delta(self) -> Awaitable[list[TranscriptionSegment]]:
        return self._read()

    async def _read(self) -> list[TranscriptionSegment]:
        if self._is_reading:
            raise BusyResourceError("reading from")

        if self._is_closed or self._run.is_done:
            self._request.close()
            await checkpoint()
            raise StopAsyncIteration

        self._is_reading = True
        try:
            with self._request.step():
                segments = cast("Sequence[SpeechSegment]", await self._run.next_window())
                return [_to_wire(segment) for segment in segments]
        except Exception as error:
            self._request.close()
            if isinstance(error, RequestAbortedError) and self._is_closed:
                raise StopAsyncIteration from None  # Another task closed the stream.

            raise
        finally:
            self._is_reading = False

    def _delta_to_chunks(self, delta: list[TranscriptionSegment]) -> Iterable[TranscriptionSegment]:
        return [] if self._is_closed else delta

    def _cancel(self) -> None:
        self._request.cancel()
        self._request.close()

    def _delta_statistics(self) -> MemoryObjectStreamStatistics:
        is_over = self._is_closed or self._run.is_done
        return MemoryObjectStreamStatistics(0, 0, int(not is_over), int(not is_over), 0, 0)


async def open_transcription(
    service: SessionProvider, audio: AudioInput, request: TranscriptionRequest, param: str = "audio"
) -> TranscriptionStream:
    """Return the stream of a validated request.

    Args:
        service: The provider of the model.
        audio: The audio.
        request: The settings.
        param: What the request calls the audio, for errors.

    Raises:
        AiomlcError: As `AsyncMLCEngine.transcribe`.
    """
    engine = await service.encoder("transcription")
    transcriber = cast("Transcriber", engine.model)
    options = _to_options(request)
    transcriber.check(options)
    opened = engine.open_request(f"transcription-{uuid.uuid4().hex}")
    try:
        with opened.step():
            # Imported late, with NumPy.
            from aiomlc.runtime.audio.sources import load_audio, recordings

            async with recordings.get():
                samples = await load_audio(audio, transcriber.limits, param)
                run = await transcriber.start(samples, options)
                del samples
    except BaseException:
        opened.close()
        raise

    return TranscriptionStream(run, opened, service, request.task)


async def transcribe(
    service: SessionProvider, audio: AudioInput, request: TranscriptionRequest, param: str = "audio"
) -> Transcription:
    """Return the text of a recording: the sum of its stream.

    Raises:
        AiomlcError: As `AsyncMLCEngine.transcribe`.
    """
    return await collect(await open_transcription(service, audio, request, param))


async def collect(stream: TranscriptionStream) -> Transcription:
    """Return the sum of a stream, and close it.

    Raises:
        AiomlcError: As iteration.
    """
    async with stream:
        segments = [segment async for segment in stream]

    assert stream.language is not None, "every recording has a window"
    return Transcription(
        task=stream.task,
        language=stream.language,
        duration=stream.duration,
        text="".join(segment.text for segment in segments).strip(),
        segments=segments,
        usage=TranscriptionUsage(seconds=stream.duration),
    )


def _to_options(request: TranscriptionRequest) -> SpeechOptions:
    from aiomlc.runtime.speech.transcriber import SpeechOptions  # Imported late, with NumPy.
    from aiomlc.runtime.speech.window import Thresholds

    return SpeechOptions(
        task=request.task,
        language=request.language,
        prompt=request.prompt,
        timestamps=request.timestamps,
        temperatures=request.temperature,
        thresholds=Thresholds(
            compression_ratio=request.compression_ratio_threshold,
            log_prob=request.logprob_threshold,
            no_speech=request.no_speech_threshold,
        ),
        condition_on_previous=request.condition_on_previous_text,
        seed=request.seed,
    )


def _to_wire(segment: SpeechSegment) -> TranscriptionSegment:
    window = segment.window
    return TranscriptionSegment(
        id=segment.index,
        seek=segment.seek,
        start=segment.start,
        end=segment.end,
        text=segment.text,
        tokens=list(segment.token_ids),
        temperature=window.temperature,
        avg_logprob=window.avg_logprob,
        compression_ratio=window.compression_ratio,
        no_speech_prob=window.no_speech_prob,
    )
