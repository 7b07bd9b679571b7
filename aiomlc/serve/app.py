"""The ASGI application."""

from __future__ import annotations

__all__ = ("Application", "create_app")

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from difflib import get_close_matches
from typing import final

from anyio import move_on_after
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from aiomlc.api.protocol.ignored import IgnoredFields
from aiomlc.errors import AiomlcError, UnsupportedFieldError
from aiomlc.serve.context import Context
from aiomlc.serve.http.admission import Admission
from aiomlc.serve.http.gate import Gate, RequestIds
from aiomlc.serve.http.http_errors import HTTPError, error_response, to_http_error
from aiomlc.serve.models import Served, to_registry
from aiomlc.serve.options import ServerOptions
from aiomlc.serve.routes import make_routes

_LOG = logging.getLogger("aiomlc")
# Time for the answers to aborted requests to be sent.
_ABORT_SECONDS = 5.0
# Paths that are often tried first, and what there is instead.
_FIRST_PATHS = {
    **dict.fromkeys(("/", "/v1"), "; clients have /v1 as their base_url, and /v1/models shows it"),
    **dict.fromkeys(("/docs", "/redoc"), "; /openapi.json describes the API"),
    **dict.fromkeys(("/ping", "/healthz", "/livez"), "; did you mean /health?"),
    "/readyz": "; did you mean /ready?",
}
# The paths of APIs that are not served, by their beginning, and what there is instead.
_OTHER_APIS = {
    "/api/": "; Ollama's API is not served, OpenAI's is: /v1/chat/completions",
    "/v1/messages": "; Anthropic's API is not served, OpenAI's is: /v1/chat/completions",
    **dict.fromkeys(
        ("/v1/files", "/v1/batches"), "; `aiomlc batch` answers files of requests, on the computer"
    ),
}
# A longer path is not compared with those that are served: that takes time on the event loop.
_MAX_COMPARED_PATH = 200


@final
class Application:
    """OpenAI's HTTP API over engines: an ASGI application for any server or framework.

    Its lifespan opens the engines that are not open, and closes these at the end. Mounted in
    another application, which does not run its lifespan, the first request opens a model, and the
    owner of an engine closes it.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._app = Starlette(
            routes=make_routes(context),
            middleware=_middleware(context),
            exception_handlers={
                HTTPError: _answer_http_error,
                HTTPException: _answer_routing_error,
                AiomlcError: _answer_library_error,
                Exception: _answer_failure,
            },
            lifespan=self._lifespan,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(_without_final_slash(scope), receive, send)

    @property
    def is_draining(self) -> bool:
        """Whether new requests are rejected."""
        return self._context.admission.is_draining

    async def open(self) -> None:
        """Open the models that are not open, as the lifespan does.

        Raises:
            ModelLoadError: If a model cannot be opened.
        """
        await self._context.models.open()

    def terminate(self) -> None:
        """Close the engines that were not open when the application was created."""
        self._context.models.terminate()

    async def drain(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109 - it ends requests.
        """Reject new requests from now on (503), and wait until the running ones have ended.

        Args:
            timeout: Seconds after which the remaining requests are aborted; None for no limit.

        Returns:
            Whether all requests ended before `timeout`.
        """
        admission = self._context.admission
        admission.is_draining = True
        with move_on_after(timeout):
            await admission.wait_idle()

        if admission.num_running == 0:
            return True

        await self._context.models.abort_requests()
        with move_on_after(_ABORT_SECONDS):
            await admission.wait_idle()

        return False

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        try:
            if self._context.options.load == "start":
                await self.open()

            yield
        finally:
            self.terminate()


def create_app(
    models: Served | Mapping[str, Served], options: ServerOptions | None = None
) -> Application:
    """Return an ASGI application that serves models over OpenAI's HTTP API:

        app = create_app(AsyncMLCEngine("HF://Qwen/Qwen3-0.6B"))

    Run it with any ASGI server, such as uvicorn, or mount it in another application.

    Args:
        models: What to serve: an engine, an `EngineConfig`, or the name of a model, which become
            engines. A mapping serves several under its names.
        options: The options of the application.

    Raises:
        BadRequestError: If an argument is invalid.
        ModelNotFoundError: If the directory of a model does not exist.
    """
    options = ServerOptions() if options is None else options
    ignored = IgnoredFields() if options.ignore_unsupported_fields else None
    return Application(Context(to_registry(models), options, Admission(options), ignored))


def _without_final_slash(scope: Scope) -> Scope:
    """Return a scope whose path has no slash at its end, which Litestar adds below a mount."""
    path: str = scope.get("path", "")
    if not path.endswith("/") or path.removeprefix(scope.get("root_path", "")) == "/":
        return scope

    return {**scope, "path": path[:-1]}


def _middleware(context: Context) -> list[Middleware]:
    options = context.options
    middleware = [Middleware(RequestIds, statuses=context.statuses)]
    if options.allow_origins:
        middleware.append(
            Middleware(
                CORSMiddleware,
                allow_origins=options.allow_origins,
                allow_methods=options.allow_methods,
                allow_headers=options.allow_headers,
                allow_credentials=options.allow_credentials,
                expose_headers=("x-request-id", "retry-after"),
            )
        )

    middleware.append(Middleware(Gate, options=options, admission=context.admission))
    return middleware


async def _answer_http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPError)
    return error_response(error)


async def _answer_routing_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = f"{request.method} {request.scope['path']}: {error.detail}"
    return error_response(
        HTTPError(error.status_code, message + _routing_hint(request, error), headers=error.headers)
    )


def _routing_hint(request: Request, error: HTTPException) -> str:
    """Return what to write instead of a wrong path or method, for the end of a message."""
    allowed = Headers(error.headers).get("allow")
    if allowed is not None:
        return f"; use {allowed}"

    path: str = request.scope["path"]
    if error.status_code != 404 or len(path) > _MAX_COMPARED_PATH:
        return ""

    root_path: str = request.scope.get("root_path", "")
    prefix = root_path if path.startswith(root_path) else ""
    paths = [route.path for route in request.app.routes if "{" not in route.path]
    asked = path.removeprefix(prefix)
    if asked in _FIRST_PATHS:
        return _FIRST_PATHS[asked]

    for start, hint in _OTHER_APIS.items():
        if asked.startswith(start):
            return hint

    # A path of an endpoint as the base_url, or a similar path.
    whole = [path for path in paths if len(path) > 1 and asked.startswith(f"{path}/")]
    similar = whole or get_close_matches(asked, paths, 1, cutoff=0.8)
    return f"; did you mean {prefix}{similar[0]}?" if similar else ""


async def _answer_library_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, AiomlcError)
    answer = to_http_error(error)
    if isinstance(error, UnsupportedFieldError):
        answer.message += "; the operator can let the server ignore it by "
        answer.message += "--ignore-unsupported-fields"

    return error_response(answer)


async def _answer_failure(request: Request, error: Exception) -> Response:
    # The server logs the traceback; it gets the exception after this response.
    request_id: str = request.scope["state"]["request_id"]
    _LOG.error("request %s failed: %r", request_id, error)
    headers = {"x-request-id": request_id}
    return error_response(
        HTTPError(500, "the server failed; its log has the reason", headers=headers)
    )
