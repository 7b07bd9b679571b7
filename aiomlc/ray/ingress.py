"""The ASGI application that receives requests and passes them to replicas."""

from __future__ import annotations

__all__ = ("Ingress",)

from typing import final

import orjson
from anyio.abc import TaskGroup
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from aiomlc.errors import AiomlcError
from aiomlc.ray.client import ReplicaClient
from aiomlc.ray.exchange import AppRequest, ResponseBatch
from aiomlc.ray.prefix import prefix_key
from aiomlc.serve.endpoints.generation import CHAT, COMPLETIONS, RESPONSES
from aiomlc.serve.http.disconnects import run_until_disconnect
from aiomlc.serve.http.http_errors import HTTPError, error_response, to_http_error
from aiomlc.serve.http.request_body import read_body
from aiomlc.serve.options import ServerOptions

_APIS = {
    "/v1/chat/completions": CHAT,
    "/v1/completions": COMPLETIONS,
    "/v1/responses": RESPONSES,
}


@final
class Ingress:
    """An ASGI application whose requests are answered by replicas.

    The paths, the fields and the errors are those of `create_app`, as a replica runs it.

    Args:
        options: The limits of bodies. Everything else is checked by the replicas.
    """

    def __init__(self, client: ReplicaClient, options: ServerOptions) -> None:
        self._client = client
        self._options = options

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _run_lifespan(receive, send)
            return

        if scope["type"] != "http":
            raise RuntimeError(f"{scope['type']} connections are not served")

        try:
            body = await read_body(scope, receive, self._options)
        except HTTPError as error:
            await error_response(error)(scope, receive, send)
            return
        except ClientDisconnect:
            return

        response = _Response(scope, receive, send)
        request = AppRequest.from_scope(scope, body, _key_of(body))

        async def respond(_: TaskGroup) -> None:
            try:
                await self._client.answer(request, response.write)
            except AiomlcError as error:
                await response.fail(to_http_error(error))

        await run_until_disconnect(receive, respond)


@final
class _Response:
    """A response that may have to report that it cannot be completed."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._has_started = False
        self._is_event_stream = False

    async def write(self, batch: ResponseBatch) -> None:
        """Send a batch; the status of a repeated request is that of the first attempt."""
        if batch.status is not None:
            if not self._has_started:
                await self._start(batch.status, batch.headers)
            elif batch.status != 200:  # The status 200 was sent with a comment.
                await self._end_with_event(_parse_error(batch.status, batch.body))
                return

        await self._send(
            {"type": "http.response.body", "body": batch.body, "more_body": not batch.is_last}
        )

    async def fail(self, error: HTTPError) -> None:
        """Report an error: as a response, or as an event if one has begun.

        Raises:
            HTTPError: If neither is possible, so that the server must break the connection.
        """
        if not self._has_started:
            await error_response(error)(self._scope, self._receive, self._send)
        elif self._is_event_stream:
            await self._end_with_event(error)
        else:
            raise error

    async def _start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self._has_started = True
        content_type = dict(headers).get(b"content-type", b"")
        self._is_event_stream = content_type.startswith(b"text/event-stream")
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def _end_with_event(self, error: HTTPError) -> None:
        path: str = self._scope["path"].removeprefix(self._scope.get("root_path", ""))
        encoder = _APIS.get(path, CHAT).make_encoder()
        event = encoder.encode_error(error) + encoder.last
        await self._send({"type": "http.response.body", "body": event, "more_body": False})


def _parse_error(status: int, body: bytes) -> HTTPError:
    fields = orjson.loads(body)["error"]
    return HTTPError(status, fields["message"], param=fields["param"], code=fields["code"])


def _key_of(body: bytes) -> str | None:
    try:
        fields = orjson.loads(body) if body else None
    except orjson.JSONDecodeError:  # The replica says so.
        return None

    try:
        return prefix_key(fields) if isinstance(fields, dict) else None
    except TypeError:  # It is nested too deeply to be written; the replica says so.
        return None


async def _run_lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
