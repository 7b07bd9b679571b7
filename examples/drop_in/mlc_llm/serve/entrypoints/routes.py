"""Routes of aiomlc's server over the engines of the `ServerContext`, for FastAPI."""

from __future__ import annotations

from typing import Any

from aiomlc.serve import Application, ServerOptions, create_app
from mlc_llm.serve.server.answers import MLCAnswers
from mlc_llm.serve.server.server_context import ServerContext


class _Endpoint:
    """Passes a request to an application over the engines that the context has then."""

    def __init__(self) -> None:
        self._app: MLCAnswers | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        context = ServerContext.current()
        if context is None:
            raise RuntimeError("there is no ServerContext")

        if self._app is None:
            self._app = _answers(context)

        await self._app(scope, receive, send)


def make_router(paths: dict[str, str]) -> Any:
    """Return a router with these paths and their methods."""
    from fastapi import APIRouter
    from starlette.routing import Route

    router = APIRouter()
    router.routes += [Route(path, _Endpoint(), methods=[method]) for path, method in paths.items()]
    return router


def _answers(context: ServerContext) -> MLCAnswers:
    engines = dict(context._models)
    encoders = {name: parts(engine) for name, engine in context._embedding_engines.items()}
    names = context.get_model_list()
    options = ServerOptions(
        embedding_model=next(iter(encoders), None),
        enable_debug=context.enable_debug,
        api_keys=() if context.api_key is None else (context.api_key,),
    )
    app: Application = create_app({**engines, **encoders}, options)
    return MLCAnswers(app, names[0], enable_debug=context.enable_debug)


def parts(engine: Any) -> Any:
    """Return the async engine of an engine of embeddings."""
    return engine._engine._engine
