"""The lines of OpenAI's batch files: requests, answers and errors."""

from __future__ import annotations

__all__ = (
    "DUPLICATE",
    "URLS",
    "BatchRequest",
    "RejectedLine",
    "error_line",
    "is_torn_line",
    "parse_line",
    "response_line",
)

import uuid
from dataclasses import dataclass
from typing import Any, Final

import orjson

from aiomlc.validation.json_values import safe_repr

URLS: Final = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings")
#: The error code of a request that repeats the `custom_id` of an earlier one.
DUPLICATE: Final = "duplicate_custom_id"

_BEGINNING = b'{"id":"batch_req_'


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """One request of a batch."""

    custom_id: str
    url: str
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class RejectedLine:
    """Why a line of the input is not a request, and whose line it is."""

    code: str
    message: str
    custom_id: str | None = None  #: None if the line has none, so that it gets no answer.


def parse_line(line: bytes) -> BatchRequest | RejectedLine:
    """Return the request of a line, or what is wrong with it."""
    try:
        fields = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        return RejectedLine("invalid_json_line", f"the line is not JSON: {error}")

    if not isinstance(fields, dict):
        return RejectedLine("invalid_json_line", "the line must be a JSON object")

    custom_id = fields.get("custom_id")
    if not isinstance(custom_id, str) or not custom_id:
        return RejectedLine(
            "missing_required_parameter",
            f"custom_id: must be a string that is not empty, got {safe_repr(custom_id)}",
        )

    return _parse_request(custom_id, fields)


def _parse_request(custom_id: str, fields: dict[str, Any]) -> BatchRequest | RejectedLine:
    for name in ("method", "url", "body"):
        if name not in fields:
            return RejectedLine("missing_required_parameter", f"{name}: is missing", custom_id)

    method, url, body = fields["method"], fields["url"], fields["body"]
    if method != "POST":
        message = f'method: must be "POST", got {safe_repr(method)}'
        return RejectedLine("invalid_method", message, custom_id)

    if url not in URLS:
        message = f"url: must be one of {', '.join(URLS)}, got {safe_repr(url)}"
        return RejectedLine("invalid_url", message, custom_id)

    if not isinstance(body, dict):
        message = f"body: must be a JSON object, got {safe_repr(body)}"
        return RejectedLine("invalid_body", message, custom_id)

    return BatchRequest(custom_id, url, body)


def response_line(custom_id: str, status: int, body: bytes) -> bytes:
    """Return the line with the response to a request.

    Args:
        status: The HTTP status that the server would answer with.
    """
    response = {
        "status_code": status,
        "request_id": uuid.uuid4().hex,
        "body": orjson.Fragment(body),
    }
    return _output_line(custom_id, response=response, error=None)


def error_line(custom_id: str, code: str, message: str) -> bytes:
    """Return the line of a request that was not sent to a model."""
    return _output_line(custom_id, response=None, error={"code": code, "message": message})


def _output_line(custom_id: str, *, response: object, error: object) -> bytes:
    fields = {
        "id": f"batch_req_{uuid.uuid4().hex}",
        "custom_id": custom_id,
        "response": response,
        "error": error,
    }
    return orjson.dumps(fields, option=orjson.OPT_APPEND_NEWLINE)


def is_torn_line(text: bytes) -> bool:
    """Return whether a text without an end may be the beginning of a line of these functions.

    After a power failure, a file may end with zeros instead.
    """
    text = text.rstrip(b"\0")
    return text.startswith(_BEGINNING) or _BEGINNING.startswith(text)
