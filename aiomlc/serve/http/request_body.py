"""Reading of JSON bodies within limits of size and time."""

from __future__ import annotations

__all__ = ("read_body", "read_bytes", "read_fields")

from typing import Any

import numpy as np
import orjson
from anyio import fail_after
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope

from aiomlc.runtime.concurrency.worker_thread import run_in_worker
from aiomlc.serve.http.http_errors import HTTPError
from aiomlc.serve.options import ServerOptions
from aiomlc.validation.request_shape import MAX_NODES

_JSON = "application/json"
_BYTES = "application/octet-stream"
_MAX_INLINE_SIZE = 2**16  # A larger body is parsed in a worker thread.
_NODES = (b":", b"{", b"[")  # One for each name, object and list.


async def read_fields(scope: Scope, receive: Receive, options: ServerOptions) -> dict[str, Any]:
    """Receive the body of a request, which must be a JSON object.

    Raises:
        HTTPError: If the body is not JSON (400, 415), too large (413) or too slow (408).
        ClientDisconnect: If the client disconnects.
    """
    headers = Headers(scope=scope)
    _check_content_type(headers.get("content-type"))
    body = await read_body(scope, receive, options)
    if len(body) <= _MAX_INLINE_SIZE:
        return _parse_object(body)

    return await run_in_worker(lambda _: _parse_large_object(body))


async def read_bytes(
    scope: Scope, receive: Receive, options: ServerOptions, *, max_size: int
) -> bytes:
    """Receive a body of at most `max_size` bytes, which must be an `application/octet-stream`.

    Raises:
        HTTPError: If the body has another type (415), is too large (413) or too slow (408).
        ClientDisconnect: If the client disconnects.
    """
    value = Headers(scope=scope).get("content-type")
    if value != _BYTES:
        raise HTTPError(
            415,
            f"Content-Type: must be {_BYTES}, got {value!r}",
            code="unsupported_media_type",
        )

    return await read_body(scope, receive, options, max_size=max_size)


async def read_body(
    scope: Scope, receive: Receive, options: ServerOptions, *, max_size: int | None = None
) -> bytes:
    """Receive the body of a request, of at most `max_size` bytes or `options.max_body_size`.

    Raises:
        HTTPError: If the body is compressed (415), too large (413) or too slow (408).
        ClientDisconnect: If the client disconnects.
    """
    limit = options.max_body_size if max_size is None else max_size
    headers = Headers(scope=scope)
    _check_encoding(headers.get("content-encoding", "identity"))
    length = headers.get("content-length", "")
    if length.isdecimal() and int(length) > limit:
        raise _too_large(limit)

    try:
        with fail_after(options.body_timeout):
            body = await _receive_parts(receive, limit)
    except TimeoutError:
        raise HTTPError(
            408,
            f"the body was not received within {options.body_timeout:g} s",
            code="body_timeout",
            headers={"connection": "close"},
        ) from None

    scope.setdefault("state", {}).update(body_size=len(body), has_whole_body=True)
    return body


def _check_content_type(value: str | None) -> None:
    # Other types are those that a web page of any origin may send without a preflight request.
    kind = (value or "").partition(";")[0].strip().lower()
    if kind != _JSON and not (kind.startswith("application/") and kind.endswith("+json")):
        raise HTTPError(
            415,
            f"Content-Type: must be {_JSON}, got {value!r}"
            if value
            else f"Content-Type: is missing; send {_JSON}",
            code="unsupported_media_type",
        )


def _check_encoding(value: str) -> None:
    if value.lower() != "identity":
        raise HTTPError(
            415,
            f"Content-Encoding: is not supported, got {value!r}; send the body as it is",
            code="unsupported_media_type",
            headers={"accept-encoding": "identity"},
        )


async def _receive_parts(receive: Receive, max_size: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    has_more = True
    while has_more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect

        part = message.get("body", b"")
        size += len(part)
        if size > max_size:
            raise _too_large(max_size)

        if part:
            parts.append(part)
        has_more = message.get("more_body", False)

    return parts[0] if len(parts) == 1 else b"".join(parts)


def _parse_object(body: bytes) -> dict[str, Any]:
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise HTTPError(400, f"the body is not JSON: {error}", code="invalid_json") from None

    if not isinstance(fields, dict):
        raise HTTPError(
            400,
            f"the body must be a JSON object, got {type(fields).__name__}",
            code="invalid_json",
        )

    return fields


def _parse_large_object(body: bytes) -> dict[str, Any]:
    if _num_nodes(body) > MAX_NODES:
        raise HTTPError(
            400,
            f"the body must have at most {MAX_NODES} names, objects and lists",
            code="too_many_fields",
        )

    return _parse_object(body)


def _num_nodes(body: bytes) -> int:
    """Return how many names, objects and lists a JSON text has, without parsing it."""
    number = sum(map(body.count, _NODES))
    if number <= MAX_NODES:
        return number  # Also those in strings, if that does not matter.

    characters = np.frombuffer(body.replace(rb"\\", b"").replace(rb"\"", b""), np.uint8)
    in_string = np.bitwise_xor.accumulate(characters == ord('"'))
    is_node = np.isin(characters, np.frombuffer(b"".join(_NODES), np.uint8))
    return int(np.count_nonzero(is_node & ~in_string))


def _too_large(max_size: int) -> HTTPError:
    return HTTPError(
        413,
        f"the body must have at most {max_size} bytes",
        code="body_too_large",
        headers={"connection": "close"},
    )
