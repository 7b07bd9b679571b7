"""Methods of `AsyncMLCEngine` for models that transcribe speech."""

from __future__ import annotations

__all__ = ("AsyncTranscriptionMixin",)

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Unpack

from aiomlc.api.generation.options import documents_options
from aiomlc.api.protocol.limits import parse_off_loop
from aiomlc.api.protocol.transcription import (
    Transcription,
    TranscriptionRequest,
    TranscriptionSegment,
    parse_transcription_request,
)
from aiomlc.api.session.lifecycle import EngineLifecycle
from aiomlc.api.streams.pending_response import returns_pending
from aiomlc.api.streams.pending_stream import PendingStream
from aiomlc.api.transcription import (
    TranscriptionOptions,
    TranscriptionStream,
    open_transcription,
    transcribe,
)
from aiomlc.validation.tracebacks import keeps_origin

if TYPE_CHECKING:
    from aiomlc.runtime.audio.sources import AudioInput


class AsyncTranscriptionMixin:
    """Gives an engine for async code the methods for speech models."""

    _lifecycle: EngineLifecycle

    @documents_options(TranscriptionOptions)
    @returns_pending
    @keeps_origin
    async def transcribe(
        self, audio: AudioInput, **options: Unpack[TranscriptionOptions]
    ) -> Transcription:
        """Return the text of a recording, with its segments:

            result = await engine.transcribe("meeting.mp3", language="en")
            print(result.text)

        The model must transcribe speech. Whisper hears longer audio in windows of 30 seconds, each
        from where the text of the one before ends. Concurrent requests are batched.

        Args:
            audio: The path or the bytes of a file (WAV, FLAC, OGG, MP3, AIFF), or samples: mono,
                16 kHz, float32, from -1 to 1.
            options: The optional fields.

        Raises:
            BadRequestError: If a field or the audio is invalid, or the model is another one.
            MissingPackageError: If a file is to be decoded without the extra `audio`.
            RequestFailedError: If the model failed.
            EngineError: If the engine is closed.
            ModelLoadError: If this is the first request and the model cannot be loaded.
        """
        request = await parse_off_loop(parse_transcription_request, options)
        return await transcribe(self._lifecycle, audio, request)

    @documents_options(TranscriptionOptions)
    def stream_transcription(
        self, audio: AudioInput, **options: Unpack[TranscriptionOptions]
    ) -> PendingStream[TranscriptionStream, TranscriptionSegment]:
        """Return the segments of a recording as they are heard:

            async for segment in engine.stream_transcription("meeting.mp3"):
                print(segment.start, segment.text)

        The text of a segment is final. `await` and `async with` give the stream as well.

        Raises:
            AiomlcError: On the first use, as `transcribe`.
        """
        return PendingStream(_open, self._lifecycle, audio, options)

    async def open_transcription(
        self, audio: AudioInput, request: TranscriptionRequest, param: str
    ) -> TranscriptionStream:
        """Open the stream of a validated request, which calls its audio `param`."""
        return await open_transcription(self._lifecycle, audio, request, param)


async def _open(
    lifecycle: EngineLifecycle, audio: AudioInput, options: Mapping[str, Any]
) -> TranscriptionStream:
    request = await parse_off_loop(parse_transcription_request, options)
    return await open_transcription(lifecycle, audio, request)
