"""Methods of `MLCEngine` for models that transcribe speech."""

from __future__ import annotations

__all__ = ("TranscriptionIterator", "TranscriptionMixin")

from functools import partial
from typing import TYPE_CHECKING, Unpack

from aiomlc.api.engines.async_engine import AsyncMLCEngine
from aiomlc.api.generation.options import documents_options
from aiomlc.api.protocol.transcription import Transcription, TranscriptionSegment
from aiomlc.api.streams.portal import BlockingStream, EnginePortal
from aiomlc.api.transcription import TranscriptionOptions

if TYPE_CHECKING:
    from aiomlc.runtime.audio.sources import AudioInput

TranscriptionIterator = BlockingStream[TranscriptionSegment]


class TranscriptionMixin:
    """Gives an engine for blocking code the methods of `AsyncTranscriptionMixin`."""

    _engine: AsyncMLCEngine
    _portal: EnginePortal

    @documents_options(TranscriptionOptions)
    def transcribe(
        self, audio: AudioInput, **options: Unpack[TranscriptionOptions]
    ) -> Transcription:
        """Return the text of a recording, like `AsyncMLCEngine.transcribe`."""
        return self._portal.call(partial(self._engine.transcribe, audio, **options))

    @documents_options(TranscriptionOptions)
    def stream_transcription(
        self, audio: AudioInput, **options: Unpack[TranscriptionOptions]
    ) -> TranscriptionIterator:
        """Return the segments of a recording as they are heard."""
        open_stream = partial(self._engine.stream_transcription, audio, **options)
        return BlockingStream(self._portal.call(open_stream), self._portal)
