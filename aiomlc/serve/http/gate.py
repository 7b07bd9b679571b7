"""The middleware before the endpoints: request ids, hosts, API keys, limits and counts."""

from __future__ import annotations

__all__ = ("Gate", "RequestIds")

import re
import uuid
from collections import Counter
from contextlib import nullcontext
from typing import final

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from aiomlc.serve.http.admission import Admission
from aiomlc.serve.http.api_keys import APIKeys
from aiomlc.serve.http.framing import check_framing
from aiomlc.serve.http.http_errors import HTTPError, error_response
from aiomlc.serve.http.memory import LARGE_BODY, return_memory_soon
from aiomlc.serve.options import ServerOptions

# What needs no key: probes, and the page that asks for the key.
_PUBLIC_PATHS = frozenset({"/", "/health", "/ready", "/openapi.json"})
_PUBLIC_PREFIX = "/playground/"
_REQUEST_ID = re.compile(r"[A-Za-z0-9._~:@/+=-]{1,128}")
_CLIENT_CLOSED = 499  # nginx's status of a request whose client went away.


@final
class RequestIds:
    """Middleware that gives each response an `X-Request-Id`, and counts the statuses.

    The id of a request is that of its own `X-Request-Id` header, if it is harmless in a log.
    """

    def __init__(self, app: ASGIApp, *, statuses: Counter[int]) -> None:
        self._app = app
        self._statuses = statuses

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        given = Headers(scope=scope).get("x-request-id", "")
        request_id = given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
        header = (b"x-request-id", request_id.encode())
        scope.setdefault("state", {})["request_id"] = request_id
        status = _CLIENT_CLOSED
        has_started = False

        async def send_with_id(message: Message) -> None:
            nonlocal has_started, status
            if message["type"] == "http.response.start":
                has_started = True
                status = message["status"]
                message = {**message, "headers": [*message.get("headers", ()), header]}

            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except ClientDisconnect:
            pass
        except Exception:
            status = 500 if status == _CLIENT_CLOSED else status
            raise
        finally:
            self._statuses[status] += 1

        if not has_started:  # The client is gone, but a middleware around us may want an answer.
            await Response(status_code=_CLIENT_CLOSED)(scope, receive, send)

        if scope["state"].get("body_size", 0) >= LARGE_BODY:
            return_memory_soon()


@final
class Gate:
    """Middleware that checks the host, the API key and the limits of a request."""

    def __init__(self, app: ASGIApp, *, options: ServerOptions, admission: Admission) -> None:
        self._app = app
        self._keys = APIKeys(options.api_keys)
        self._hosts = frozenset(host.lower() for host in options.allowed_hosts)
        self._admission = admission

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        try:
            headers = Headers(scope=scope)
            check_framing(scope, headers)
            self._check_host(headers)
            path = scope["path"].removeprefix(scope.get("root_path", ""))
            is_public = path in _PUBLIC_PATHS or path.startswith(_PUBLIC_PREFIX)
            key = 0 if is_public else self._keys.check(headers)
            # What is not a POST is answered at once, also by a server that is full or draining.
            is_work = scope["method"] == "POST"
            with self._admission.admit(key) if is_work else nullcontext():
                await self._app(scope, receive, send)
        except HTTPError as error:
            await error_response(error)(scope, receive, send)

    def _check_host(self, headers: Headers) -> None:
        if not self._hosts:
            return

        host = headers.get("host", "")
        name = host if host.endswith("]") else re.sub(r":\d*$", "", host)
        if name.lower() not in self._hosts:
            raise HTTPError(
                421,
                f"Host: {name!r} is not a name of this server; the operator can add it to "
                "allowed_hosts",
                code="unknown_host",
            )
