"""Chat completions, text completions and responses."""

from __future__ import annotations

__all__ = ("CHAT", "COMPLETIONS", "RESPONSES", "GenerationAPI", "GenerationEndpoint")

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, final

from anyio.abc import TaskGroup
from pydantic import BaseModel
from starlette.types import Receive, Scope, Send

from aiomlc.api.engines.async_engine import AsyncMLCEngine
from aiomlc.api.protocol.chat_request import parse_chat_request
from aiomlc.api.protocol.completion import parse_completion_request
from aiomlc.api.protocol.limits import parse_off_loop
from aiomlc.api.protocol.response_request import parse_response_request
from aiomlc.api.streams.chunk_stream import ChunkStream
from aiomlc.serve.context import Context
from aiomlc.serve.http.disconnects import run_until_disconnect
from aiomlc.serve.http.event_encoder import (
    ChatEventEncoder,
    EventEncoder,
    ResponseEventEncoder,
    TextEventEncoder,
)
from aiomlc.serve.http.event_stream import send_events
from aiomlc.serve.http.fields import prepare_fields
from aiomlc.serve.http.json_text import send_json, to_json_in_turns
from aiomlc.serve.http.request_body import read_fields


class _Request(Protocol):
    @property
    def stream(self) -> bool | None: ...


class _Resource(Protocol):
    """The part of an engine that answers the requests of one API."""

    async def open(self, request: Any) -> ChunkStream[Any, Any]: ...  # noqa: ANN401

    async def complete(self, request: Any) -> BaseModel: ...  # noqa: ANN401


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationAPI:
    """The differences between one API of generated text and the others."""

    parse: Callable[..., _Request]
    resource: Callable[[AsyncMLCEngine], _Resource]
    make_encoder: Callable[[], EventEncoder]


@final
class GenerationEndpoint:
    """The endpoint of an API: a request is cancelled when its client goes away."""

    def __init__(self, context: Context, api: GenerationAPI) -> None:
        self._context = context
        self._api = api

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        options = self._context.options
        fields = await read_fields(scope, receive, options)
        model = self._context.models.find(fields.get("model"))
        fields = prepare_fields(fields, model.name, options)
        resource = self._api.resource(model.engine)

        async def respond(tasks: TaskGroup) -> None:
            parse = partial(self._api.parse, ignored=self._context.ignored)
            request = await parse_off_loop(parse, fields)
            await model.open()
            if request.stream:
                await self._stream(await resource.open(request), send, tasks)
            else:
                text = await to_json_in_turns(await resource.complete(request))
                await send_json(text, scope, receive, send, seconds=options.write_timeout)

        await run_until_disconnect(receive, respond)

    def _stream(
        self, chunks: ChunkStream[Any, Any], send: Send, tasks: TaskGroup
    ) -> Awaitable[None]:
        return send_events(
            chunks,
            self._api.make_encoder(),
            send=send,
            options=self._context.options,
            tasks=tasks,
        )


CHAT = GenerationAPI(
    parse=parse_chat_request,
    resource=lambda engine: engine.chat.completions,
    make_encoder=ChatEventEncoder,
)
COMPLETIONS = GenerationAPI(
    parse=parse_completion_request,
    resource=lambda engine: engine.completions,
    make_encoder=TextEventEncoder,
)
RESPONSES = GenerationAPI(
    parse=parse_response_request,
    resource=lambda engine: engine.responses,
    make_encoder=ResponseEventEncoder,
)
