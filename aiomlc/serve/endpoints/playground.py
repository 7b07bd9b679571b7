"""The playground: a static page that uses the endpoints."""

from __future__ import annotations

__all__ = ("playground_routes",)

from collections.abc import Mapping
from pathlib import Path
from typing import final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from aiomlc.serve.http.http_errors import HTTPError

_DIRECTORY = Path(__file__).parents[1] / "playground"
_MEDIA_TYPES = {
    ".css": "text/css",
    ".html": "text/html",
    ".ico": "image/x-icon",
    ".js": "text/javascript",
    ".json": "application/json",
    ".mjs": "text/javascript",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
}
_HEADERS: Mapping[str, str] = {
    "cache-control": "no-cache",
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
        "font-src 'self'; connect-src 'self'; manifest-src 'self'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


def playground_routes() -> list[BaseRoute]:
    """Return the routes of the page and its assets."""
    files = _Files(_DIRECTORY)
    return [Route("/", files.index), Route("/playground/{name}", files.asset)]


@final
class _Files:
    def __init__(self, directory: Path) -> None:
        # Only these are served, whatever a path contains.
        self._files = {
            path.name: path.read_bytes()
            for path in directory.glob("*")
            if path.suffix in _MEDIA_TYPES
        }

    async def index(self, _: Request) -> Response:
        """Return the page."""
        return self._response("index.html")

    async def asset(self, request: Request) -> Response:
        """Return a file that the page uses."""
        return self._response(request.path_params["name"])

    def _response(self, name: str) -> Response:
        content = self._files.get(name)
        if content is None:
            raise HTTPError(404, f"the playground has no file {name!r}", code="not_found")

        # Not a FileResponse, after which hypercorn on trio leaves a connection open.
        media_type = _MEDIA_TYPES[Path(name).suffix]
        return Response(content, headers=dict(_HEADERS), media_type=media_type)
