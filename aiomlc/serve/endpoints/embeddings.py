"""Embeddings."""

from __future__ import annotations

__all__ = ("EmbeddingEndpoint",)

from typing import final

from anyio.abc import TaskGroup
from starlette.types import Receive, Scope, Send

from aiomlc.api.protocol.embedding import EmbeddingRequest, parse_embedding_request
from aiomlc.api.protocol.limits import check_input_size, parse_off_loop
from aiomlc.serve.context import Context
from aiomlc.serve.disconnects import run_until_disconnect
from aiomlc.serve.fields import prepare_fields
from aiomlc.serve.json_text import send_json
from aiomlc.serve.request_body import read_fields


@final
class EmbeddingEndpoint:
    """The endpoint of embeddings."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        options = self._context.options
        fields = await read_fields(scope, receive, options)
        model = self._context.models.find(fields.get("model"))
        fields = prepare_fields(fields, EmbeddingRequest, model.name, options)

        async def respond(_: TaskGroup) -> None:
            request = await parse_off_loop(parse_embedding_request, fields, check_input_size)
            answer = await model.engine.embeddings.embed(request)
            await send_json(answer, scope, receive, send, seconds=options.write_timeout)

        await run_until_disconnect(receive, respond)
