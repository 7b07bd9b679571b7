"""Errors in OpenAI's JSON shape, and the HTTP status of each exception of the library."""

from __future__ import annotations

__all__ = ("HTTPError", "error_response", "to_http_error")

import logging
from collections.abc import Mapping
from typing import Any, final

from anyio import move_on_after
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from aiomlc.errors import (
    AiomlcError,
    BadRequestError,
    DeadlineExceededError,
    DuplicateRequestError,
    EngineDrainingError,
    EngineError,
    EngineOverloadedError,
    InputTooLongError,
    ModelLoadError,
    PrefixNotCachedError,
    PrefixTransferError,
    PromptTooLongError,
    ReplicaLostError,
    RequestAbortedError,
    RequestError,
    RequestFailedError,
)
from aiomlc.serve.http.json_text import to_json

_LOG = logging.getLogger("aiomlc")
_RETRY_LATER: Mapping[str, str] = {"retry-after": "1"}
# OpenAI's client would repeat the request, which would take as long again.
_NO_RETRY: Mapping[str, str] = {"x-should-retry": "false"}
_TYPES = {401: "authentication_error", 429: "rate_limit_error"}
# What is read and dropped of a body after the answer, before the connection is closed.
_MAX_DROPPED = 16 * 2**20  # Bytes.
_LINGER_SECONDS = 2.0
# For each exception its status, code and headers; the first that matches counts.
_STATUSES: tuple[tuple[type[AiomlcError], int, str | None, Mapping[str, str]], ...] = (
    (PromptTooLongError, 400, "context_length_exceeded", {}),
    (InputTooLongError, 400, "context_length_exceeded", {}),
    (DuplicateRequestError, 409, "duplicate_request_id", {}),
    (DeadlineExceededError, 408, "timeout", _NO_RETRY),
    (RequestAbortedError, 499, "request_aborted", _NO_RETRY),
    (PrefixTransferError, 422, "prefix_transfer_error", {}),
    (PrefixNotCachedError, 409, "prefix_not_cached", {}),
    (RequestError, 400, None, {}),
    (EngineOverloadedError, 429, "engine_overloaded", _RETRY_LATER),
    (EngineDrainingError, 503, "draining", _RETRY_LATER),
    (ReplicaLostError, 503, "replica_lost", _RETRY_LATER),
    (RequestFailedError, 500, "request_failed", {}),
    (EngineError, 503, "engine_unavailable", {}),
)


@final
class HTTPError(Exception):
    """An answer with an error status, in OpenAI's shape."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.headers: Mapping[str, str] = headers or {}

    @property
    def type(self) -> str:
        """OpenAI's `type` of the error."""
        default = "server_error" if self.status >= 500 else "invalid_request_error"
        return _TYPES.get(self.status, default)

    def body(self) -> dict[str, Any]:
        """Return the JSON object of the answer."""
        fields = {
            "message": self.message,
            "type": self.type,
            "param": self.param,
            "code": self.code,
        }
        return {"error": fields}


def to_http_error(error: AiomlcError) -> HTTPError:
    """Return the answer to a request that failed with an exception of the library."""
    if isinstance(error, ModelLoadError):  # Its message has paths of this computer.
        _LOG.error("a model cannot be loaded: %s", error)
        return HTTPError(
            500, "the model cannot be loaded; the server's log has the reason", code="model_error"
        )

    for kind, status, code, headers in _STATUSES:
        if isinstance(error, kind):
            param = error.param if isinstance(error, BadRequestError) else None
            return HTTPError(status, _as_text(error), param=param, code=code, headers=headers)

    return HTTPError(500, _as_text(error))


@final
class _ErrorResponse(Response):
    """A response that may close a connection whose client still sends.

    Closing at once would reset the connection, and the client might never read the answer. So the
    rest of the body is read before the end, up to a limit, and dropped.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""
        if self.headers.get("connection") != "close" or scope["method"] != "POST":
            await super().__call__(scope, receive, send)
            return

        start = {"type": "http.response.start", "status": self.status_code}
        await send({**start, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": True})
        if not scope.get("state", {}).get("has_whole_body"):
            with move_on_after(_LINGER_SECONDS):
                await _drop_body(receive)

        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _drop_body(receive: Receive) -> None:
    size = 0
    while size < _MAX_DROPPED:
        message = await receive()
        size += len(message.get("body", b""))
        if not message.get("more_body"):
            return


def error_response(error: HTTPError) -> Response:
    """Return the response with an error."""
    return _ErrorResponse(
        to_json(error.body()),
        error.status,
        headers=dict(error.headers),
        media_type="application/json",
    )


def _as_text(error: AiomlcError) -> str:
    # A message may quote lone surrogates, which JSON cannot carry.
    return str(error).encode(errors="backslashreplace").decode()
