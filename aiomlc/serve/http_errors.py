"""Errors in OpenAI's JSON shape, and the HTTP status of each exception of the library."""

from __future__ import annotations

__all__ = ("HTTPError", "error_response", "to_http_error")

import logging
from collections.abc import Mapping
from typing import Any, final

from starlette.responses import Response

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
from aiomlc.serve.json_text import to_json

_LOG = logging.getLogger("aiomlc")
_RETRY_LATER: Mapping[str, str] = {"retry-after": "1"}
# OpenAI's client would repeat the request, which would take as long again.
_NO_RETRY: Mapping[str, str] = {"x-should-retry": "false"}
_TYPES = {401: "authentication_error", 429: "rate_limit_error"}
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


def error_response(error: HTTPError) -> Response:
    """Return the response with an error."""
    return Response(
        to_json(error.body()),
        error.status,
        headers=dict(error.headers),
        media_type="application/json",
    )


def _as_text(error: AiomlcError) -> str:
    # A message may quote lone surrogates, which JSON cannot carry.
    return str(error).encode(errors="backslashreplace").decode()
