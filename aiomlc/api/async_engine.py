"""`AsyncMLCEngine`: a model that answers many requests at once, on asyncio or trio."""

from __future__ import annotations

__all__ = ("AsyncMLCEngine", "Loader")

import dataclasses
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from os import PathLike, fspath
from typing import Protocol, Self, final

from anyio import AsyncContextManagerMixin, Lock, to_thread
from anyio.lowlevel import checkpoint

from aiomlc.api.chat import AsyncChat, ChatSession
from aiomlc.api.metrics import EngineMetrics
from aiomlc.config import EngineConfig, Mode
from aiomlc.errors import BadRequestError, EngineClosedError, EngineError
from aiomlc.runtime.core_protocol import CoreStatistics
from aiomlc.runtime.engine import Engine
from aiomlc.runtime.loaded_model import LoadedModel, LoadProgress

_DEVICES = ("auto", "cpu")

Model = str | PathLike[str]


class Loader(Protocol):
    """How an engine gets its model."""

    async def __call__(
        self,
        model: Model | None,
        *,
        device: str,
        mode: Mode,
        engine_config: EngineConfig,
        on_progress: Callable[[LoadProgress], None] | None,
    ) -> LoadedModel:
        """Open the model; None is the bundled one. Cancelling leaves nothing behind."""


@final
class AsyncMLCEngine(AsyncContextManagerMixin):
    """Serve one model to concurrent requests.

        async with AsyncMLCEngine() as engine:
            answer = await engine.chat.completions.create(messages=[...])

    Leaving the scope ends every request and frees everything. Without a scope, the first request
    opens the model and `terminate` ends it. `model` is a directory; None is the bundled model.

    Raises:
        BadRequestError: an argument is invalid or not supported; `param` names it.
    """

    def __init__(  # noqa: PLR0913 - upstream's signature.
        self,
        model: Model | None = None,
        device: str = "auto",
        *,
        model_lib: Model | None = None,
        mode: Mode = "local",
        engine_config: EngineConfig | None = None,
        enable_tracing: bool = False,
        on_progress: Callable[[LoadProgress], None] | None = None,
        loader: Loader | None = None,
    ) -> None:
        config = engine_config or EngineConfig()
        _check_same("model", None if model is None else fspath(model), config.model)
        _check_same("model_lib", None if model_lib is None else fspath(model_lib), config.model_lib)
        _check_same("mode", mode, config.mode)
        _check_supported(device, model_lib, enable_tracing)
        model = config.model if model is None else model
        self.engine_config = dataclasses.replace(
            config, model=None if model is None else fspath(model), mode=mode
        )
        self._service = _Service(model, device, self.engine_config, on_progress, loader)
        self.chat = AsyncChat(self._service)

    def __repr__(self) -> str:
        return f"<AsyncMLCEngine {self.engine_config.model or 'bundled model'}>"

    @asynccontextmanager
    async def __asynccontextmanager__(self) -> AsyncIterator[Self]:
        async with self._service.scope():
            yield self

    async def abort(self, request_id: str) -> None:
        """End a request; its reader gets `RequestAbortedError`. An unknown id does nothing."""
        await checkpoint()
        if self._service.is_open:
            self._service.engine.abort(request_id)

    async def metrics(self) -> EngineMetrics:
        """The engine's counters under upstream's names.

        Raises:
            EngineClosedError: the engine is not open.
        """
        await checkpoint()
        return EngineMetrics(self.statistics())

    def statistics(self) -> CoreStatistics:
        """A snapshot of the engine's counters.

        Raises:
            EngineClosedError: the engine is not open.
        """
        return self._service.engine.statistics()

    def terminate(self) -> None:
        """End every request and free the model. Waiting readers get `EngineClosedError`.

        From any thread; blocks for at most the step that is running. A second call does nothing.
        """
        self._service.terminate()


@final
class _Service:
    """The one owner of the open engine.

    The engine, its `chat` and each stream hold it, and its task does not: when all of them are
    garbage, the task ends too.
    """

    def __init__(
        self,
        model: Model | None,
        device: str,
        config: EngineConfig,
        on_progress: Callable[[LoadProgress], None] | None,
        loader: Loader | None,
    ) -> None:
        self._model = model
        self._device = device
        self._config = config
        self._on_progress = on_progress
        self._loader = loader or _load_model
        self._opening = Lock()
        self._session: ChatSession | None = None
        self._terminated = False

    def __del__(self) -> None:
        if self._session is not None:
            self._session.engine.stop()

    @property
    def is_open(self) -> bool:
        return self._session is not None and not self._terminated

    @property
    def engine(self) -> Engine:
        if self._session is None:
            raise EngineClosedError("the engine is not open")

        return self._session.engine

    async def session(self) -> ChatSession:
        """The open session; the first call opens it, in a task of its own."""
        if self._session is None:
            # One caller loads. If that one is cancelled, the next in line takes over.
            async with self._opening:
                if self._session is None:
                    session = await self._load()
                    session.engine.start()
                    self._session = session

        if self._terminated:
            raise EngineClosedError("the engine was terminated")

        return self._session

    @asynccontextmanager
    async def scope(self) -> AsyncIterator[None]:
        """Open the session for as long as the scope lasts."""
        async with self._opening:
            if self._session is not None:
                raise EngineError("the engine is already open")

            session = await self._load()
            self._session = session

        try:
            async with session.engine:
                yield
        finally:
            self._terminated = True

    def terminate(self) -> None:
        self._terminated = True
        if self._session is not None:
            self._session.engine.terminate()

    async def _load(self) -> ChatSession:
        if self._terminated:
            raise EngineClosedError("the engine was terminated")

        loaded = await self._loader(
            self._model,
            device=self._device,
            mode=self._config.mode or "local",
            engine_config=self._config,
            on_progress=self._on_progress,
        )
        session = ChatSession(Engine(loaded.core), loaded)
        if self._terminated:
            session.engine.terminate()
            raise EngineClosedError("the engine was terminated")

        return session


async def _load_model(
    model: Model | None,
    *,
    device: str,
    mode: Mode,
    engine_config: EngineConfig,
    on_progress: Callable[[LoadProgress], None] | None,
) -> LoadedModel:
    load_model = await to_thread.run_sync(_import_loader)
    return await load_model(
        model, device=device, mode=mode, engine_config=engine_config, on_progress=on_progress
    )


def _import_loader() -> Loader:
    from aiomlc.runtime.load import load_model  # It imports half a second of what only it needs.

    return load_model


def _check_same(name: str, argument: str | None, configured: str | None) -> None:
    if argument is not None and configured is not None and argument != configured:
        raise BadRequestError(
            f'The argument "{name}" of engine constructor is "{argument}", while the "{name}" '
            f'field in argument "engine_config" is "{configured}". Please set the '
            f'"engine_config.{name}" to None or set it to the same as the argument "{name}".',
            param=name,
        )


def _check_supported(device: str, model_lib: Model | None, enable_tracing: bool) -> None:
    if device not in _DEVICES:
        raise BadRequestError(
            f"device {device!r} is not supported yet: use 'auto' or 'cpu'", param="device"
        )

    if model_lib is not None:
        raise BadRequestError("model_lib is not supported yet", param="model_lib")

    if enable_tracing:
        raise BadRequestError("enable_tracing is not supported yet", param="enable_tracing")
