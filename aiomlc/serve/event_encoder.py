"""The text of server-sent events."""

from __future__ import annotations

__all__ = ("DONE", "ChatEventEncoder", "EventEncoder", "encode_data", "encode_named")

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias, final

import orjson
from pydantic import BaseModel

from aiomlc.api.protocol.chat import ChatCompletionChunk
from aiomlc.api.protocol.response import ResponseEvent
from aiomlc.serve.json_text import to_json

#: Returns the events of chunks.
EventEncoder: TypeAlias = Callable[[Iterable[Any]], bytes]

DONE = b"data: [DONE]\n\n"  #: The last event of a completion.
_TEXT_DELTA_FIELDS = {"content"}
_MARK = "\x00\x00"


def encode_data(chunks: Iterable[BaseModel]) -> bytes:
    """Return one event without a name per chunk."""
    return b"".join(b"data: %b\n\n" % to_json(chunk) for chunk in chunks)


def encode_named(events: Iterable[ResponseEvent]) -> bytes:
    """Return one event per event of a response, with its type as the name."""
    return b"".join(
        b"event: %b\ndata: %b\n\n" % (event.type.encode(), to_json(event)) for event in events
    )


@final
class ChatEventEncoder:
    """The encoder of one chat completion's chunks.

    Nearly every chunk only has the text of one choice, and differs from the one before in this
    text: its other bytes are written once.
    """

    def __init__(self) -> None:
        self._around_text: dict[int, tuple[bytes, bytes]] = {}  # By the index of the choice.

    def __call__(self, chunks: Iterable[ChatCompletionChunk]) -> bytes:
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
                and delta.model_fields_set == _TEXT_DELTA_FIELDS
            ):
                around = self._around_text.get(choice.index) or self._split(chunk)
                return b"%b%b%b" % (around[0], orjson.dumps(delta.content), around[1])

        return encode_data((chunk,))

    def _split(self, chunk: ChatCompletionChunk) -> tuple[bytes, bytes]:
        """Return the bytes before and after the text of a chunk that only has a text."""
        choice = chunk.choices[0]
        delta = choice.delta.model_copy(update={"content": _MARK})
        marked = chunk.model_copy(update={"choices": [choice.model_copy(update={"delta": delta})]})
        before, _, after = encode_data((marked,)).partition(orjson.dumps(_MARK))
        self._around_text[choice.index] = before, after
        return before, after
