"""Web application that streams chat completions as server-sent events.

    .venv/bin/uvicorn examples.web_app:app
    curl -N localhost:8000/chat -d '{"messages": [{"role": "user", "content": "Hi"}]}'

Needs the extra `serve` of aiomlc.
A client that disconnects early cancels its request, which frees its resources. When run as a
program, this file sends one request to itself, without a socket.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.testclient import TestClient
from starlette.types import Receive, Scope, Send

from aiomlc import (
    AiomlcError,
    AsyncMLCEngine,
    BadRequestError,
    ChatCompletionStream,
    RequestError,
)


class EventStream(StreamingResponse):
    """Response that sends the chunks of a completion as events."""

    def __init__(self, chunks: ChatCompletionStream) -> None:
        self._chunks = chunks
        self._events = self._read()
        super().__init__(self._events, media_type="text/event-stream")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # However the response ends, cancel its request.
        async with self._chunks, aclosing(self._events):
            await super().__call__(scope, receive, send)

    async def _read(self) -> AsyncGenerator[str]:
        try:
            async for chunk in self._chunks:
                yield f"data: {chunk.model_dump_json()}\n\n"
        except AiomlcError as error:
            yield f"event: error\ndata: {json.dumps(error_body(error))}\n\n"

        yield "data: [DONE]\n\n"


def error_body(error: Exception) -> dict[str, dict[str, str]]:
    return {"error": {"message": str(error)}}


async def read_fields(request: Request) -> dict[str, Any]:
    try:
        body = await request.json()
    except ValueError as error:
        raise BadRequestError(f"the body must be JSON: {error}") from error

    if not isinstance(body, dict):
        raise BadRequestError("the body must be a JSON object")

    return body


def create_app(engine: AsyncMLCEngine) -> Starlette:
    """Return the application; its lifespan opens and closes the engine."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with engine:
            yield

    async def chat(request: Request) -> Response:
        body = await read_fields(request)
        return EventStream(
            await engine.chat.completions.create(
                messages=body.get("messages", []), max_tokens=body.get("max_tokens"), stream=True
            )
        )

    async def handle_error(_: Request, error: Exception) -> Response:
        return JSONResponse(error_body(error), 400 if isinstance(error, RequestError) else 503)

    return Starlette(
        routes=[Route("/chat", chat, methods=["POST"])],
        exception_handlers={AiomlcError: handle_error},
        lifespan=lifespan,
    )


app = create_app(AsyncMLCEngine())


def main() -> None:
    body = {"messages": [{"role": "user", "content": "Who are you?"}]}
    with TestClient(app) as client, client.stream("POST", "/chat", json=body) as response:
        for line in response.iter_lines():
            print(line)


if __name__ == "__main__":
    main()
