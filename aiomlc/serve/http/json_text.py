"""JSON texts of responses."""

from __future__ import annotations

__all__ = ("is_long", "json_response", "send_json", "send_response", "to_json", "to_json_in_turns")

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import orjson
from anyio import move_on_after
from anyio.lowlevel import RunVar
from pydantic import BaseModel
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from aiomlc.api.generation.logprobs import LONG_LOGPROBS
from aiomlc.api.protocol.chat import (
    ChatCompletion,
    ChatCompletionChunk,
    Choice,
    ChoiceLogprobs,
    ChunkChoice,
    UnreadEntries,
    unread_entries,
)
from aiomlc.api.protocol.completion import Completion, CompletionLogprobs
from aiomlc.runtime.concurrency.turns import Turns

# With 20 alternatives each, so many take about a millisecond.
_ENTRIES_PER_PIECE = 64
_answers: RunVar[Turns] = RunVar("_answers")
_Answer = ChatCompletion | ChatCompletionChunk | Completion
_Logprobs = ChoiceLogprobs | CompletionLogprobs
_NO_LOGPROBS = ChoiceLogprobs(content=[])
_NO_COMPLETION_LOGPROBS = CompletionLogprobs(
    text_offset=[], token_logprobs=[], tokens=[], top_logprobs=[]
)


def to_json(value: object) -> bytes:
    """Return the JSON text of a wire model or of plain values, in UTF-8."""
    if not isinstance(value, BaseModel):
        return orjson.dumps(value)

    return _join(value, [(each, list(each.pieces())) for each in _long_lists(value)])


async def to_json_in_turns(value: BaseModel) -> bytes:
    """Return the same of an answer with any number of log-probabilities, in short turns."""
    turns = Turns.of_loop(_answers)
    await turns.take()
    texts: list[tuple[_LongList, list[bytes]]] = []
    for each in _long_lists(value):
        texts.append((each, []))
        for piece in each.pieces():
            texts[-1][1].append(piece)
            await turns.take()

    return _join(value, texts)


def is_long(value: BaseModel) -> bool:
    """Return whether `to_json` takes so long that a worker thread should call it."""
    return any(len(each.entries) > LONG_LOGPROBS for each in _long_lists(value))


class _LongList(NamedTuple):
    """A list of an answer with an entry for each token, and its keys in the answer's fields."""

    keys: tuple[str | int, ...]
    entries: Sequence[Any] | UnreadEntries

    def pieces(self) -> Iterator[bytes]:
        """Return the JSON of the entries, some at a time, without brackets."""
        if isinstance(self.entries, Sequence):
            entries = iter(self.entries)
            return iter(lambda: _dump_piece(islice(entries, _ENTRIES_PER_PIECE)), b"")

        texts = self.entries.json()
        return iter(lambda: b",".join(islice(texts, _ENTRIES_PER_PIECE)), b"")


def _dump_piece(entries: Iterable[Any]) -> bytes:
    values = [entry.model_dump() if isinstance(entry, BaseModel) else entry for entry in entries]
    return orjson.dumps(values)[1:-1]


def _long_lists(value: BaseModel) -> Iterator[_LongList]:
    if isinstance(value, Completion):
        return _completion_lists(value)

    if isinstance(value, (ChatCompletion, ChatCompletionChunk)):
        return _chat_lists(value)

    return iter(())


def _completion_lists(value: Completion) -> Iterator[_LongList]:
    for index, choice in enumerate(value.choices):
        if choice.logprobs is not None:
            for name in CompletionLogprobs.model_fields:
                keys = ("choices", index, "logprobs", name)
                yield _LongList(keys, getattr(choice.logprobs, name))

        if choice.prompt_logprobs is not None:
            yield _LongList(("choices", index, "prompt_logprobs"), choice.prompt_logprobs)


def _chat_lists(value: ChatCompletion | ChatCompletionChunk) -> Iterator[_LongList]:
    choices: Sequence[Choice | ChunkChoice] = value.choices
    for index, choice in enumerate(choices):
        entries = unread_entries(choice.logprobs)
        if entries is not None:
            yield _LongList(("choices", index, "logprobs", "content"), entries)

    if value.prompt_logprobs is not None:
        yield _LongList(("prompt_logprobs",), value.prompt_logprobs)


def _join(value: BaseModel, texts: Sequence[tuple[_LongList, list[bytes]]]) -> bytes:
    """Return the JSON text of a model, with the texts of its long lists."""
    if not texts or not isinstance(value, _Answer):
        return orjson.dumps(value.model_dump())

    fields = _without_long_lists(value).model_dump()
    for (keys, _), pieces in texts:
        target: Any = fields
        for key in keys[:-1]:
            target = target[key]

        target[keys[-1]] = orjson.Fragment(b"[%b]" % b",".join(pieces))

    return orjson.dumps(fields)


def _without_long_lists(value: _Answer) -> BaseModel:
    """Return a copy of an answer whose long lists are empty."""
    if isinstance(value, Completion):
        choices: list[Any] = [
            each.model_copy(update={"logprobs": _emptied(each.logprobs), "prompt_logprobs": None})
            for each in value.choices
        ]
        return value.model_copy(update={"choices": choices})

    choices = [
        each.model_copy(update={"logprobs": _emptied(each.logprobs)}) for each in value.choices
    ]
    return value.model_copy(update={"choices": choices, "prompt_logprobs": None})


def _emptied(logprobs: _Logprobs | None) -> _Logprobs | None:
    """Return log-probabilities of no tokens in place of any."""
    if isinstance(logprobs, CompletionLogprobs):
        return _NO_COMPLETION_LOGPROBS

    return None if logprobs is None else _NO_LOGPROBS


def json_response(value: object, status: int = 200) -> Response:
    """Return a response with a wire model or plain values."""
    return Response(to_json(value), status, media_type="application/json")


async def send_json(
    text: bytes, scope: Scope, receive: Receive, send: Send, *, seconds: float
) -> None:
    """Send a response with a JSON text, as `send_response`."""
    response = Response(text, media_type="application/json")
    await send_response(response, scope, receive, send, seconds=seconds)


async def send_response(
    response: Response, scope: Scope, receive: Receive, send: Send, *, seconds: float
) -> None:
    """Send a response; a client that has not read it after `seconds` is dropped.

    A server may report the disconnect, and close the connection, while the end is being sent. That
    must not be cancelled, or the connection stays open.
    """
    with move_on_after(seconds, shield=True):
        await response(scope, receive, send)
