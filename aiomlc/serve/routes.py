"""The routes of the application."""

from __future__ import annotations

__all__ = ("make_routes",)

from starlette.routing import BaseRoute, Route

from aiomlc.serve.context import Context
from aiomlc.serve.endpoints.debug import DebugEndpoints
from aiomlc.serve.endpoints.encoders import (
    CLASSIFY,
    EMBEDDINGS,
    RERANK,
    SCORE,
    EncoderEndpoint,
)
from aiomlc.serve.endpoints.generation import CHAT, COMPLETIONS, RESPONSES, GenerationEndpoint
from aiomlc.serve.endpoints.microserving import (
    RECEIVE_PATH,
    START_GENERATE,
    MicroservingEndpoints,
)
from aiomlc.serve.endpoints.playground import playground_routes
from aiomlc.serve.endpoints.status import StatusEndpoints
from aiomlc.serve.endpoints.tokens import TokenEndpoints
from aiomlc.serve.endpoints.transcriptions import TranscriptionEndpoint

_POST = ["POST"]
# Cohere has two versions of its path, and vLLM each path with and without one.
_RANKING = {
    RERANK: ("/v1/rerank", "/v2/rerank", "/rerank"),
    SCORE: ("/v1/score", "/score"),
    CLASSIFY: ("/v1/classify", "/classify"),
}


def make_routes(context: Context) -> list[BaseRoute]:
    """Return the routes of an application."""
    status = StatusEndpoints(context)
    tokens = TokenEndpoints(context)
    routes: list[BaseRoute] = [
        Route("/v1/chat/completions", GenerationEndpoint(context, CHAT), methods=_POST),
        Route("/v1/completions", GenerationEndpoint(context, COMPLETIONS), methods=_POST),
        Route("/v1/responses", GenerationEndpoint(context, RESPONSES), methods=_POST),
        Route("/v1/embeddings", EncoderEndpoint(context, EMBEDDINGS), methods=_POST),
        *(
            Route(path, EncoderEndpoint(context, api), methods=_POST)
            for api, paths in _RANKING.items()
            for path in paths
        ),
        Route(
            "/v1/audio/transcriptions",
            TranscriptionEndpoint(context, "transcribe"),
            methods=_POST,
        ),
        Route("/v1/audio/translations", TranscriptionEndpoint(context, "translate"), methods=_POST),
        Route("/v1/models", status.models),
        Route("/v1/models/{name:path}", status.model),
        Route("/health", status.health),
        Route("/ready", status.ready),
        Route("/metrics", status.metrics),
        Route("/version", status.version),
        Route("/openapi.json", status.openapi),
        Route("/tokenize", tokens.tokenize, methods=_POST),
        Route("/detokenize", tokens.detokenize, methods=_POST),
    ]
    if context.options.enable_debug:
        routes += _debug_routes(DebugEndpoints(context))

    if context.options.microserving_peers:
        routes += _microserving_routes(context)

    return routes + playground_routes() if context.options.playground else routes


def _microserving_routes(context: Context) -> list[BaseRoute]:
    endpoints = MicroservingEndpoints(context)
    start_generate = GenerationEndpoint(context, START_GENERATE)
    return [
        Route("/microserving/prep_recv", endpoints.prep_recv, methods=_POST),
        Route("/microserving/remote_send", endpoints.remote_send, methods=_POST),
        Route("/microserving/start_generate", start_generate, methods=_POST),
        Route(RECEIVE_PATH, endpoints.receive, methods=_POST),
    ]


def _debug_routes(debug: DebugEndpoints) -> list[BaseRoute]:
    return [
        Route("/debug/dump_event_trace", debug.dump_event_trace, methods=_POST),
        Route("/debug/dump_engine_metrics", debug.dump_engine_metrics, methods=_POST),
        Route("/debug/reset_engine", debug.reset_engine, methods=_POST),
        Route("/debug/cuda_profiler_start", debug.no_profiler, methods=_POST),
        Route("/debug/cuda_profiler_stop", debug.no_profiler, methods=_POST),
    ]
