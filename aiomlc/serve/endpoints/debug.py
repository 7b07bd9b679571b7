"""MLC LLM's `/debug/...`, with `enable_debug` only."""

from __future__ import annotations

__all__ = ("DebugEndpoints",)

from typing import final

from starlette.requests import Request
from starlette.responses import Response

from aiomlc.api.engines.async_engine import AsyncMLCEngine
from aiomlc.errors import EngineError
from aiomlc.serve.context import Context
from aiomlc.serve.http.http_errors import HTTPError
from aiomlc.serve.http.json_text import json_response
from aiomlc.serve.http.request_body import read_fields


@final
class DebugEndpoints:
    """The endpoints for programs that test or measure a server; the body may name a model."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def dump_event_trace(self, request: Request) -> Response:
        """Return the events of an engine with tracing, in the Trace Event Format."""
        engine = await self._engine(request)
        if not engine.engine_config.enable_tracing:
            raise HTTPError(400, "tracing is disabled: start the server with --enable-tracing")

        return json_response(engine.trace())

    async def dump_engine_metrics(self, request: Request) -> Response:
        """Return the metrics of an engine under MLC LLM's names."""
        engine = await self._engine(request)
        return json_response((await engine.metrics()).metrics)

    async def reset_engine(self, request: Request) -> Response:
        """End every request of an engine, and empty its prefix cache."""
        await (await self._engine(request)).reset()
        return json_response({})

    async def no_profiler(self, _: Request) -> Response:
        """Reject the start and the stop of CUDA's profiler."""
        raise HTTPError(400, "there is no CUDA device to profile", code="not_supported")

    async def _engine(self, request: Request) -> AsyncMLCEngine:
        fields = await read_fields(request.scope, request.receive, self._context.options)
        model = self._context.models.find(fields.get("model"))
        if model.state != "loaded":
            raise EngineError(f"the model {model.name!r} is not open: {model.state}")

        return model.engine
