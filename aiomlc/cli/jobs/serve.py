"""The process of `aiomlc serve`."""

from __future__ import annotations

__all__ = ("ServeSettings", "make_engines", "run_server")

import gc
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from socket import socket

import anyio
from anyio import to_thread

from aiomlc.api.engines.async_engine import AsyncMLCEngine
from aiomlc.cli.options.serve import AccessOptions, EngineOptions, LimitOptions, ListenOptions
from aiomlc.cli.terminal.failures import CommandError
from aiomlc.cli.terminal.progress import with_progress
from aiomlc.cli.terminal.standard_streams import write_error
from aiomlc.errors import BadRequestError, ModelNotFoundError
from aiomlc.runtime.loading.model_directory import find_model
from aiomlc.runtime.loading.progress import LoadProgress
from aiomlc.serve import Application, ServerOptions, create_app
from aiomlc.serve.models import last_part, model_name
from aiomlc.serve.servers.run import serve
from aiomlc.serve.servers.settings import ServerSettings, listen


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeSettings:
    """The arguments of `aiomlc serve`."""

    model: str | None
    listen: ListenOptions
    engines: EngineOptions
    access: AccessOptions
    limits: LimitOptions

    def server_options(self) -> ServerOptions:
        """Return the options of the application."""
        encoder = self.engines.embedding_model
        return ServerOptions(
            load=self.engines.load,
            embedding_model=None if encoder is None else last_part(encoder),
            **self.access.fields(self.listen.hosts),
            **self.limits.fields(),
        )

    def server_settings(self) -> ServerSettings:
        """Return the settings of the server.

        Raises:
            CommandError: If the server does not run on the event loop.
        """
        self.listen.check()
        return ServerSettings(
            host=self.listen.host,
            port=self.listen.port,
            server=self.listen.server,
            access_log=self.listen.access_log,
            quiet_paths=self.listen.quiet_paths,
            header_timeout=self.limits.header_timeout,
            max_header_size=self.limits.max_header_size,
            drain_timeout=self.limits.drain_timeout,
        )


def run_server(settings: ServeSettings) -> None:
    """Serve until a signal.

    Raises:
        AiomlcError: If an option is invalid, the address cannot be listened on, or a model cannot
            be opened.
    """
    options, server = settings.server_options(), settings.server_settings()
    if not options.api_keys and settings.listen.hosts == ():
        write_error(f"warning: {server.host} is not a loopback address, and no API key is set")

    with closing(_listen(server)) as bound:
        anyio.run(_run, settings, options, server, bound, backend=settings.listen.backend)


def _listen(settings: ServerSettings) -> socket:
    try:
        return listen(settings)
    except OSError as error:
        reason = error.strerror or error
        raise CommandError(
            f"cannot listen on {settings.host} port {settings.port}: {reason}; pass another --port "
            "(0 for any), or --host"
        ) from error


async def _run(
    settings: ServeSettings, options: ServerOptions, server: ServerSettings, bound: socket
) -> None:
    app = await with_progress(sys.stderr, partial(_open, settings, options))
    try:
        host, port = bound.getsockname()[:2]
        address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        write_error(f"OpenAI's API: {address}/v1" + (f", page: {address}" * options.playground))
        # What exists now stays, and a full garbage collection need not look at it: it delayed every
        # response by up to 50 ms.
        gc.collect()
        gc.freeze()
        await serve(app, server, bound)
    finally:
        app.terminate()


async def _open(
    settings: ServeSettings, options: ServerOptions, on_progress: Callable[[LoadProgress], None]
) -> Application:
    embedding_model = settings.engines.embedding_model
    if options.load != "start" and embedding_model is not None:
        await to_thread.run_sync(_check_embedder, embedding_model)
    engines = make_engines(settings.model, settings.engines, on_progress)
    app = create_app(engines, options)
    if options.load != "start":
        return app

    if options.embedding_model is not None:
        # Before the other models, which may take minutes to open.
        await _open_embedder(engines[options.embedding_model])
    await app.open()
    return app


def _check_embedder(model: str) -> None:
    """Refuse a decoder without opening it; what must be downloaded is not known before that."""
    from aiomlc.runtime.loading.facts import ModelFacts  # It takes time, and is rarely needed.

    with suppress(ModelNotFoundError):
        if not ModelFacts(find_model(model)).is_encoder:
            raise CommandError(
                f"--embedding-model: the model {model!r} is a decoder, which does not support "
                "embeddings",
                param="embedding_model",
            )


async def _open_embedder(engine: AsyncMLCEngine) -> None:
    try:
        await engine.embeddings.embedder()
    except BadRequestError as error:
        engine.terminate()
        raise CommandError(f"--embedding-model: {error}", param="embedding_model") from error


def make_engines(
    model: str | None, options: EngineOptions, on_progress: Callable[[LoadProgress], None]
) -> dict[str, AsyncMLCEngine]:
    """Return the engines by the names of their models; nothing is opened.

    Raises:
        AiomlcError: If an option is invalid, or two models have the same name.
    """
    make = partial(
        AsyncMLCEngine, device=options.device, mode=options.mode, on_progress=on_progress
    )
    first = make(
        model,
        model_lib=options.model_lib,
        engine_config=options.engine_config(),
        enable_tracing=options.enable_tracing,
    )
    engines = {options.served_model_name or model_name(first): first}
    others = [
        (name, make(other, mode=config.mode or options.mode, engine_config=config))
        for name, other, config in options.named_models()
    ]
    if options.embedding_model is not None:
        encoder = make(options.embedding_model, model_lib=options.embedding_model_lib)
        others.append((model_name(encoder), encoder))

    for name, engine in others:
        if name in engines:
            raise CommandError(
                f"two models have the name {name!r}: give MODEL another one by "
                "--served-model-name, or one of --add-model"
            )

        engines[name] = engine

    return engines
