"""The routes of the application."""

from __future__ import annotations

__all__ = ("make_routes",)

from starlette.routing import BaseRoute, Route

from aiomlc.serve.context import Context
from aiomlc.serve.endpoints.generation import CHAT, COMPLETIONS, RESPONSES, GenerationEndpoint
from aiomlc.serve.endpoints.status import StatusEndpoints

_POST = ["POST"]


def make_routes(context: Context) -> list[BaseRoute]:
    """Return the routes of an application."""
    status = StatusEndpoints(context)
    return [
        Route("/v1/chat/completions", GenerationEndpoint(context, CHAT), methods=_POST),
        Route("/v1/completions", GenerationEndpoint(context, COMPLETIONS), methods=_POST),
        Route("/v1/responses", GenerationEndpoint(context, RESPONSES), methods=_POST),
        Route("/v1/models", status.models),
        Route("/v1/models/{name:path}", status.model),
        Route("/health", status.health),
        Route("/ready", status.ready),
        Route("/version", status.version),
    ]
