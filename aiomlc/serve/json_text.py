"""JSON texts of responses."""

from __future__ import annotations

__all__ = ("json_response", "send_json", "to_json", "to_json_in_turns")

from collections.abc import Iterable, Mapping
from typing import Any

import orjson
from anyio import move_on_after
from anyio.lowlevel import RunVar
from pydantic import BaseModel
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from aiomlc.api.generation.logprobs import LogprobEntries
from aiomlc.api.protocol.chat import ChatCompletion, ChatCompletionChunk, unread_entries
from aiomlc.runtime.concurrency.turns import Turns

# With 20 alternatives each, so many take about a millisecond.
_ENTRIES_PER_PIECE = 64
_answers: RunVar[Turns] = RunVar("_answers")


def to_json(value: object) -> bytes:
    """Return the JSON text of a wire model or of plain values, in UTF-8."""
    if not isinstance(value, BaseModel):
        return orjson.dumps(value)

    unread = _unread_entries(value)
    return _join(value, {index: list(entries.json()) for index, entries in unread.items()})


async def to_json_in_turns(value: BaseModel) -> bytes:
    """Return the same of an answer with any number of log-probabilities, in short turns."""
    turns = Turns.of_loop(_answers)
    await turns.take()
    texts: dict[int, list[bytes]] = {}
    for index, entries in _unread_entries(value).items():
        texts[index] = []
        for number, text in enumerate(entries.json()):
            texts[index].append(text)
            if number % _ENTRIES_PER_PIECE == 0:
                await turns.take()

    return _join(value, texts)


def _unread_entries(value: BaseModel) -> dict[int, LogprobEntries]:
    """Return the log-probabilities of the choices that nobody has read, by their index."""
    if not isinstance(value, (ChatCompletion, ChatCompletionChunk)):
        return {}

    entries = (unread_entries(choice.logprobs) for choice in value.choices)
    return {i: each for i, each in enumerate(entries) if isinstance(each, LogprobEntries)}


def _join(value: BaseModel, texts: Mapping[int, Iterable[bytes]]) -> bytes:
    """Return the JSON text of a model, with the texts of the choices' log-probabilities."""
    if not texts or not isinstance(value, (ChatCompletion, ChatCompletionChunk)):
        return orjson.dumps(value.model_dump())

    choices = [choice.model_copy(update={"logprobs": None}) for choice in value.choices]
    fields: dict[str, Any] = value.model_copy(update={"choices": choices}).model_dump()
    for index, entries in texts.items():
        content = orjson.Fragment(b"[%b]" % b",".join(entries))
        fields["choices"][index]["logprobs"] = {"content": content, "refusal": None}

    return orjson.dumps(fields)


def json_response(value: object, status: int = 200) -> Response:
    """Return a response with a wire model or plain values."""
    return Response(to_json(value), status, media_type="application/json")


async def send_json(
    text: bytes, scope: Scope, receive: Receive, send: Send, *, seconds: float
) -> None:
    """Send a response with a JSON text; a client that has not read it after `seconds` is dropped.

    A server may report the disconnect, and close the connection, while the end is being sent. That
    must not be cancelled, or the connection stays open.
    """
    response = Response(text, media_type="application/json")
    with move_on_after(seconds, shield=True):
        await response(scope, receive, send)
