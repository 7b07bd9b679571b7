"""The endpoints of encoders: embeddings, reranking, scores and classification."""

from __future__ import annotations

__all__ = ("CLASSIFY", "EMBEDDINGS", "RERANK", "SCORE", "EncoderApi", "EncoderEndpoint")

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import orjson
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint
from starlette.types import Receive, Scope, Send

from aiomlc.api.engines.async_engine import AsyncMLCEngine
from aiomlc.api.protocol.embedding import EmbeddingResponse, parse_embedding_request
from aiomlc.api.protocol.limits import check_input_size, parse_off_loop
from aiomlc.api.protocol.ranking import (
    ClassifyResponse,
    RerankResponse,
    ScoreResponse,
    parse_classify_request,
    parse_rerank_request,
    parse_score_request,
)
from aiomlc.serve.context import Context
from aiomlc.serve.http.disconnects import run_until_disconnect
from aiomlc.serve.http.fields import prepare_fields
from aiomlc.serve.http.http_errors import HTTPError
from aiomlc.serve.http.json_text import send_json, to_json
from aiomlc.serve.http.request_body import read_fields

Answer = EmbeddingResponse | RerankResponse | ScoreResponse | ClassifyResponse


@dataclass(frozen=True, slots=True)
class EncoderApi:
    """The requests of one endpoint, and what answers them."""

    parse: Callable[..., Any]
    answer: Callable[[AsyncMLCEngine, Any], Awaitable[Answer]]
    items: str  #: The field with the answer's items.
    is_embedding: bool = False  #: Whether a model that is not served is the encoder of the option.


EMBEDDINGS = EncoderApi(
    parse_embedding_request,
    lambda engine, request: engine.embeddings.embed(request),
    items="data",
    is_embedding=True,
)
RERANK = EncoderApi(parse_rerank_request, AsyncMLCEngine.rank, items="results")
SCORE = EncoderApi(parse_score_request, AsyncMLCEngine.rank, items="data")
CLASSIFY = EncoderApi(parse_classify_request, AsyncMLCEngine.rank, items="data")


@final
class EncoderEndpoint:
    """An endpoint of encoders."""

    def __init__(self, context: Context, api: EncoderApi) -> None:
        self._context = context
        self._api = api

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        options = self._context.options
        fields = await read_fields(scope, receive, options)
        default = options.embedding_model if self._api.is_embedding else None
        model = self._context.models.find(fields.get("model"), default)
        fields = prepare_fields(fields, model.name, options)
        for name in ("input", "documents", "text_1", "text_2"):
            _check_items(name, fields.get(name), options.max_inputs)

        async def respond(_: TaskGroup) -> None:
            parse = partial(self._api.parse, ignored=self._context.ignored)
            request = await parse_off_loop(parse, fields, check_input_size)
            await model.open()
            text = await _to_json(await self._api.answer(model.engine, request), self._api.items)
            await send_json(text, scope, receive, send, seconds=options.write_timeout)

        await run_until_disconnect(receive, respond)


def _check_items(name: str, items: object, limit: int) -> None:
    # A list of integers is one input of token ids.
    if isinstance(items, list) and len(items) > limit and not isinstance(items[0], int):
        raise HTTPError(
            400, f"{name}: must have at most {limit} items, got {len(items)}", param=name
        )


async def _to_json(answer: Answer, name: str) -> bytes:
    """Return the JSON text of an answer, which can have megabytes, in short steps."""
    items = []
    for item in getattr(answer, name):
        items.append(orjson.Fragment(to_json(item)))
        await checkpoint()

    fields = answer.model_copy(update={name: []}).model_dump()
    return orjson.dumps({**fields, name: items})
