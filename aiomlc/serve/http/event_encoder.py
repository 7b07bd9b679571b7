"""The text of server-sent events."""

from __future__ import annotations

__all__ = (
    "ChatEventEncoder",
    "EventEncoder",
    "ResponseEventEncoder",
    "TextEventEncoder",
    "TranscriptEventEncoder",
)

from collections.abc import Iterable
from typing import Any, Final, Protocol, final

import orjson
from pydantic import BaseModel

from aiomlc.api.protocol.chat import ChatCompletionChunk
from aiomlc.api.protocol.completion import Completion
from aiomlc.api.protocol.response import ResponseEvent
from aiomlc.api.protocol.transcription import (
    TranscriptDelta,
    TranscriptDone,
    TranscriptionSegment,
)
from aiomlc.api.transcription import TranscriptionStream
from aiomlc.serve.http.http_errors import HTTPError
from aiomlc.serve.http.json_text import to_json

_DONE: Final = b"data: [DONE]\n\n"
_TEXT_DELTA_FIELDS = {"content"}
_MARK = "\x00\x00"


class EventEncoder(Protocol):
    """The encoder of one stream."""

    @property
    def last(self) -> bytes:
        """The events after the last chunk or error."""
        ...

    def encode(self, chunks: Iterable[Any], /) -> bytes:
        """Return the events of chunks."""
        ...

    def encode_error(self, error: HTTPError, /) -> bytes:
        """Return the event of an error that ends the stream."""
        ...


def _encode_data(chunk: BaseModel) -> bytes:
    return b"data: %b\n\n" % to_json(chunk)


class _DataEncoder:
    """The last events of a stream without names, as in both completion APIs."""

    last = _DONE

    def encode_error(self, error: HTTPError) -> bytes:
        return b"data: %b\n\n" % orjson.dumps(error.body())


@final
class TextEventEncoder(_DataEncoder):
    """The encoder of one text completion's chunks."""

    def encode(self, chunks: Iterable[Completion]) -> bytes:
        return b"".join(map(_encode_data, chunks))


@final
class TranscriptEventEncoder:
    """The encoder of one transcription's segments: events of new text, then one of the whole."""

    def __init__(self, stream: TranscriptionStream) -> None:
        self._stream = stream
        self._has_begun = False
        self._has_failed = False

    @property
    def last(self) -> bytes:
        """The event of the whole text, unless the transcription failed."""
        return b"" if self._has_failed else _encode_data(TranscriptDone(text=self._stream.text))

    def encode(self, segments: Iterable[TranscriptionSegment]) -> bytes:
        return b"".join(map(self._encode, segments))

    def encode_error(self, error: HTTPError) -> bytes:
        self._has_failed = True
        return b"data: %b\n\n" % orjson.dumps(error.body())

    def _encode(self, segment: TranscriptionSegment) -> bytes:
        # As in the whole text, there is no space before the first word.
        delta = segment.text if self._has_begun else segment.text.lstrip()
        self._has_begun = True
        return _encode_data(TranscriptDelta(delta=delta))


@final
class ResponseEventEncoder:
    """The encoder of the events of one response, whose types are their names."""

    last = b""

    def __init__(self) -> None:
        self._num_events = 0

    def encode(self, events: Iterable[ResponseEvent]) -> bytes:
        return b"".join(map(self._encode, events))

    def encode_error(self, error: HTTPError) -> bytes:
        fields = {
            "type": "error",
            "code": error.code or error.type,
            "message": error.message,
            "param": error.param,
            "sequence_number": self._num_events,
        }
        return b"event: error\ndata: %b\n\n" % orjson.dumps(fields)

    def _encode(self, event: ResponseEvent) -> bytes:
        self._num_events += 1
        return b"event: %b\ndata: %b\n\n" % (event.type.encode(), to_json(event))


@final
class ChatEventEncoder(_DataEncoder):
    """The encoder of one chat completion's chunks.

    Nearly every chunk only has the text of one choice, and differs from the one before in this
    text: its other bytes are written once.
    """

    def __init__(self) -> None:
        self._around_text: dict[int, tuple[bytes, bytes]] = {}  # By the index of the choice.

    def encode(self, chunks: Iterable[ChatCompletionChunk]) -> bytes:
        return b"".join(map(self._encode, chunks))

    def _encode(self, chunk: ChatCompletionChunk) -> bytes:
        choices = chunk.choices
        if len(choices) == 1:
            choice = choices[0]
            delta = choice.delta
            if (
                choice.finish_reason is None
                and choice.logprobs is None
                and chunk.prompt_logprobs is None
                and chunk.usage is None
                and delta.model_fields_set == _TEXT_DELTA_FIELDS
            ):
                around = self._around_text.get(choice.index) or self._split(chunk)
                return b"%b%b%b" % (around[0], orjson.dumps(delta.content), around[1])

        return _encode_data(chunk)

    def _split(self, chunk: ChatCompletionChunk) -> tuple[bytes, bytes]:
        """Return the bytes before and after the text of a chunk that only has a text."""
        choice = chunk.choices[0]
        delta = choice.delta.model_copy(update={"content": _MARK})
        marked = chunk.model_copy(update={"choices": [choice.model_copy(update={"delta": delta})]})
        before, _, after = _encode_data(marked).partition(orjson.dumps(_MARK))
        self._around_text[choice.index] = before, after
        return before, after
