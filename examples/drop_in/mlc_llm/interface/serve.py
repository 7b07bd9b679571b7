"""`serve`: the server of aiomlc with MLC LLM's answers."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import anyio

from aiomlc.serve import ServerOptions, create_app
from aiomlc.serve.servers.run import serve as run
from aiomlc.serve.servers.settings import ServerSettings, listen
from mlc_llm.serve.config import EngineConfig
from mlc_llm.serve.embedding_engine import AsyncEmbeddingEngine
from mlc_llm.serve.engine import AsyncMLCEngine
from mlc_llm.serve.entrypoints.routes import parts
from mlc_llm.serve.server.answers import MLCAnswers


def serve(
    model: str,
    device: Any = "auto",
    model_lib: str | None = None,
    mode: Any = "local",
    enable_debug: bool = False,
    embedding_model: str | None = None,
    embedding_model_lib: str | None = None,
    enable_tracing: bool = False,
    host: str = "127.0.0.1",
    port: int = 8000,
    allow_credentials: bool = False,
    allow_origins: Any = ("*",),
    allow_methods: Any = ("*",),
    allow_headers: Any = ("*",),
    api_key: str | None = None,
    **settings: Any,
) -> None:
    """Serve a model until a signal; `settings` are the fields of `EngineConfig`."""
    values = {name: value for name, value in settings.items() if value is not None}
    engine = AsyncMLCEngine(
        model,
        device,
        model_lib=model_lib,
        mode=mode,
        engine_config=EngineConfig(**values),
        enable_tracing=enable_tracing,
    )
    engines: dict[str, Any] = {model: engine}
    if embedding_model is not None:
        encoder = AsyncEmbeddingEngine(embedding_model, embedding_model_lib, device)
        engines[embedding_model] = parts(encoder)

    options = ServerOptions(
        api_keys=() if api_key is None else (api_key,),
        allow_origins=tuple(allow_origins),
        allow_methods=tuple(allow_methods),
        allow_headers=tuple(allow_headers),
        allow_credentials=allow_credentials,
        embedding_model=embedding_model,
        enable_debug=enable_debug,
    )
    app = MLCAnswers(create_app(engines, options), model, enable_debug=enable_debug)
    listening = ServerSettings(host=host, port=port)
    with closing(listen(listening)) as bound:
        anyio.run(run, app, listening, bound)
