"""Embeddings."""

from __future__ import annotations

__all__ = ("EmbeddingEndpoint",)

from functools import partial
from typing import final

import orjson
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint
from starlette.types import Receive, Scope, Send

from aiomlc.api.protocol.embedding import (
    EmbeddingResponse,
    parse_embedding_request,
)
from aiomlc.api.protocol.limits import check_input_size, parse_off_loop
from aiomlc.serve.context import Context
from aiomlc.serve.http.disconnects import run_until_disconnect
from aiomlc.serve.http.fields import prepare_fields
from aiomlc.serve.http.http_errors import HTTPError
from aiomlc.serve.http.json_text import send_json, to_json
from aiomlc.serve.http.request_body import read_fields


@final
class EmbeddingEndpoint:
    """The endpoint of embeddings."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        options = self._context.options
        fields = await read_fields(scope, receive, options)
        model = self._context.models.find(fields.get("model"), options.embedding_model)
        fields = prepare_fields(fields, model.name, options)
        _check_inputs(fields.get("input"), options.max_inputs)

        async def respond(_: TaskGroup) -> None:
            parse = partial(parse_embedding_request, ignored=self._context.ignored)
            request = await parse_off_loop(parse, fields, check_input_size)
            await model.open()
            text = await _to_json(await model.engine.embeddings.embed(request))
            await send_json(text, scope, receive, send, seconds=options.write_timeout)

        await run_until_disconnect(receive, respond)


def _check_inputs(inputs: object, limit: int) -> None:
    # A list of integers is one input of token ids.
    if isinstance(inputs, list) and len(inputs) > limit and not isinstance(inputs[0], int):
        raise HTTPError(
            400, f"input: must have at most {limit} items, got {len(inputs)}", param="input"
        )


async def _to_json(answer: EmbeddingResponse) -> bytes:
    """Return the JSON text of embeddings, which can have megabytes, in short steps."""
    items = []
    for item in answer.data:
        items.append(orjson.Fragment(to_json(item)))
        await checkpoint()

    fields = answer.model_copy(update={"data": []}).model_dump()
    return orjson.dumps({**fields, "data": items})
