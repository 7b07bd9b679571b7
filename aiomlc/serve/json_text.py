"""JSON texts of responses."""

from __future__ import annotations

__all__ = ("json_response", "send_json", "to_json")

import orjson
from anyio import move_on_after
from pydantic import BaseModel
from starlette.responses import Response
from starlette.types import Receive, Scope, Send


def to_json(value: object) -> bytes:
    """Return the JSON text of a wire model or of plain values, in UTF-8."""
    return orjson.dumps(value.model_dump() if isinstance(value, BaseModel) else value)


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
