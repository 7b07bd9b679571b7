"""The framing of HTTP/1 requests, where a server and a proxy before it may disagree (RFC 9112)."""

from __future__ import annotations

__all__ = ("check_framing",)

from starlette.datastructures import Headers
from starlette.types import Scope

from aiomlc.serve.http.http_errors import HTTPError

# As ASGI servers write them.
_VERSIONS = ("1.0", "1.1", "2", "3")
_CLOSE = {"connection": "close"}


def check_framing(scope: Scope, headers: Headers) -> None:
    """Require a request whose end is certain, and that asks for nothing which is not known.

    Raises:
        HTTPError: If it has another version of HTTP (505), both kinds of lengths (400) or an
            unknown expectation (417). The connection is closed, as its next bytes may be anything.
    """
    version = scope.get("http_version", "1.1")
    if version not in _VERSIONS:
        raise HTTPError(
            505,
            f"HTTP/{version} is not supported; use HTTP/1.1",
            code="http_version",
            headers=_CLOSE,
        )

    if "transfer-encoding" in headers and "content-length" in headers:
        raise HTTPError(
            400,
            "Content-Length: must not be sent beside Transfer-Encoding",
            code="invalid_http",
            headers=_CLOSE,
        )

    expectation = headers.get("expect", "100-continue")
    if expectation.lower() != "100-continue":
        raise HTTPError(
            417,
            f"Expect: must be 100-continue, got {expectation!r}",
            code="expectation_failed",
            headers=_CLOSE,
        )
