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

from aiomlc.api.prompted_transcription import open_prompted
from aiomlc.api.protocol.transcription import (
    Transcription,
    TranscriptionRequest,
    TranscriptionSegment,
    TranscriptionUsage,
)
from aiomlc.api.session.session import ModelSession, SessionProvider
from aiomlc.api.streams.chunk_stream import ChunkStream
from aiomlc.errors import RequestAbortedError
from aiomlc.runtime.embedding.encoder_engine import OpenRequest
from aiomlc.validation.parameter import Doc

if TYPE_CHECKING:
    from aiomlc.runtime.audio.sources import AudioInput
    from aiomlc.runtime.speech.transcriber import SpeechOptions, SpeechSegment, Transcriber
    from aiomlc.runtime.speech.transcriber import Transcription as SpeechRun

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
    """The work on one recording."""

    request_id: str
    duration: float
    has_times: bool

    @property
    def language(self) -> str | None: ...
    @property
    def text(self) -> str: ...
    @property
    def is_done(self) -> bool: ...
    async def next_segments(self) -> list[TranscriptionSegment]: ...
    def cancel(self) -> None: ...
    def close(self) -> None: ...


@final
class _WindowRun:
    """A recording that a speech model hears window by window."""

    has_times: bool = True

    def __init__(self, run: SpeechRun, request: OpenRequest) -> None:
        self.request_id: str = request.request_id
        self.duration: float = run.duration
        self._run = run
        self._request = request
        self._texts: list[str] = []

    @property
    def language(self) -> str | None:
        return self._run.language

    @property
    def text(self) -> str:
        return "".join(self._texts).strip()

    @property
    def is_done(self) -> bool:
        return self._run.is_done

    async def next_segments(self) -> list[TranscriptionSegment]:
        with self._request.step():
            segments = [_to_wire(segment) for segment in await self._run.next_window()]
        self._texts += [segment.text for segment in segments]
        return segments

    def cancel(self) -> None:
        self._request.cancel()

    def close(self) -> None:
        self._request.close()


@final
class TranscriptionStream(ChunkStream[list[TranscriptionSegment], TranscriptionSegment]):
    """The segments of one recording, as an async iterator for one task.

    Reading computes: a window is decoded when its first segment is asked for. So a stream that is
    not read takes no time, and its text is final, never corrected. A model whose prompt has the
    recording (Qwen 3 ASR) begins at the first read, and its segments are parts of its text. Closing
    and errors are as in `ChunkStream`.
    """

    def __init__(self, run: _Run, owner: object, task: _Task) -> None:
        super().__init__(run.request_id, owner)
        self.duration: float = run.duration  #: Of the audio, in seconds.
        self.task: _Task = task
        self._run = run
        self._is_reading = False

    def __repr__(self) -> str:
        return f"<TranscriptionStream {self.request_id!r}>"

    def __del__(self) -> None:
        if hasattr(self, "_run"):  # Else an interrupt ended the constructor.
            self._run.close()

    @property
    def language(self) -> str | None:
        """The code of the spoken language; None until it is detected."""
        return self._run.language

    @property
    def text(self) -> str:
        """The whole text, when the stream has ended. What a model repeats without end (Qwen 3 ASR)
        is in it once."""
        return self._run.text

    @property
    def has_times(self) -> bool:
        """Whether segments begin and end with what is said in them."""
        return self._run.has_times

    def _next_delta(self) -> Awaitable[list[TranscriptionSegment]]:
        return self._read()

    async def _read(self) -> list[TranscriptionSegment]:
        if self._is_reading:
            raise BusyResourceError("reading from")

        if self._is_closed or self._run.is_done:
            self._run.close()
            await checkpoint()
            raise StopAsyncIteration

        self._is_reading = True
        try:
            return await self._run.next_segments()
        except Exception as error:
            self._run.close()
            if isinstance(error, RequestAbortedError) and self._is_closed:
                raise StopAsyncIteration from None  # Another task closed the stream.

            raise
        finally:
            self._is_reading = False

    def _delta_to_chunks(self, delta: list[TranscriptionSegment]) -> Iterable[TranscriptionSegment]:
        return [] if self._is_closed else delta

    def _cancel(self) -> None:
        self._run.cancel()
        self._run.close()

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
    engine = await service.transcriber()
    if isinstance(engine, ModelSession):
        prompted = await open_prompted(engine, audio, request, param)
        return TranscriptionStream(prompted, service, request.task)

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

    return TranscriptionStream(_WindowRun(run, opened), service, request.task)


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

    return Transcription(
        task=stream.task,
        language=stream.language,
        duration=stream.duration,
        text=stream.text,
        segments=segments if stream.has_times else [],
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
