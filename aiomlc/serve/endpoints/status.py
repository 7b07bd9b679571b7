"""Models, health, readiness, metrics, version and the description of the API."""

from __future__ import annotations

__all__ = ("StatusEndpoints",)

import importlib.metadata
from typing import final

from starlette.requests import Request
from starlette.responses import Response

from aiomlc.api.protocol.model import ModelList
from aiomlc.serve.context import Context
from aiomlc.serve.endpoints.openapi import openapi_document
from aiomlc.serve.http.json_text import json_response
from aiomlc.serve.metrics_text import metrics_text

_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@final
class StatusEndpoints:
    """The endpoints for questions about the server; none of them waits for a model."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def models(self, _: Request) -> Response:
        """Return the models of the server, as OpenAI's list."""
        models = [model.description() for model in self._context.models]
        return json_response(ModelList(data=models))

    async def model(self, request: Request) -> Response:
        """Return one model by its name."""
        return json_response(self._context.models.get(request.path_params["name"]).description())

    async def health(self, _: Request) -> Response:
        """Return 200 unless an engine has failed: then the server must be started again."""
        states = self._states()
        is_healthy = not {"dead", "closed"} & set(states.values())
        status = "ok" if is_healthy else "unavailable"
        return json_response({"status": status, "models": states}, 200 if is_healthy else 503)

    async def ready(self, _: Request) -> Response:
        """Return 200 if the models are open and the server is not draining."""
        states = self._states()
        accepted = {"loaded"} if self._context.options.load == "start" else {"loaded", "unloaded"}
        is_draining = self._context.admission.is_draining
        is_ready = not is_draining and accepted.issuperset(states.values())
        status = "ready" if is_ready else "draining" if is_draining else "unavailable"
        return json_response({"status": status, "models": states}, 200 if is_ready else 503)

    async def version(self, _: Request) -> Response:
        """Return the version of the library."""
        return json_response({"version": importlib.metadata.version("aiomlc")})

    async def metrics(self, _: Request) -> Response:
        """Return the metrics in Prometheus' text format."""
        return Response(metrics_text(self._context), media_type=_METRICS_TYPE)

    async def openapi(self, _: Request) -> Response:
        """Return the description of the API."""
        return json_response(openapi_document())

    def _states(self) -> dict[str, str]:
        return {model.name: model.state for model in self._context.models}
