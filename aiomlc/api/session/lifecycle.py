"""The life of an engine's model: opened by a scope or by the first request, reloaded, ended."""

from __future__ import annotations

__all__ = ("EngineLifecycle",)

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from os import fspath
from threading import Lock as ThreadLock
from typing import TYPE_CHECKING, final

from anyio import CancelScope, Lock

from aiomlc.api.session.loader import Loader, Model, open_model
from aiomlc.api.session.model_files import ModelFacts, read_facts
from aiomlc.api.session.session import EncoderSession, ModelSession
from aiomlc.config import EngineConfig
from aiomlc.errors import BadRequestError, EngineClosedError, EngineError
from aiomlc.runtime.concurrency.event_loop import check_loop, running_loop
from aiomlc.runtime.embedding.encoder_engine import EncoderEngine
from aiomlc.runtime.engine.engine import Engine
from aiomlc.runtime.loading.loaded_model import LoadedEncoder, LoadedModel, LoadProgress
from aiomlc.runtime.templates.conversation import Conversation

if TYPE_CHECKING:
    from aiomlc.runtime.embedding.embedder import Embedder
    from aiomlc.runtime.loading.memory_plan import MemoryPlan


@final
class EngineLifecycle:
    """The one owner of what is open: loads the model, starts its engine, ends it, loads another.

    The engine, its `chat` and each stream hold it, and its task does not: when all of them are
    garbage, the task ends too.
    """

    def __init__(
        self,
        device: str,
        config: EngineConfig,
        on_progress: Callable[[LoadProgress], None] | None,
        loader: Loader | None,
    ) -> None:
        self._device = device
        self.config: EngineConfig = config
        self._on_progress = on_progress
        self._loader = loader or open_model
        self._facts: ModelFacts | None = None  # Of a model that is not open yet.
        self._session: ModelSession | EncoderSession | None = None
        self._adopting = ThreadLock()  # Guards the two below, which two event loops may want.
        self._loop: object = None
        self._lock = Lock()
        self._terminated = False
        self._is_unloaded = False

    def __del__(self) -> None:
        if self._session is not None:
            self._session.task.stop()

    @property
    def _opening(self) -> Lock:
        """Held by the one who opens or ends the model.

        Raises:
            EngineClosedError: another event loop has the engine.
        """
        # Made where it is used: the constructor may run in another event loop, or in none.
        loop = running_loop()
        with self._adopting:
            if self._loop is not loop and not self._has_loop():
                self._loop, self._lock = loop, Lock()

            check_loop(self._loop)
            return self._lock

    def _has_loop(self) -> bool:
        if self._session is not None and not self._session.task.is_over:
            return True

        return self._lock.locked()

    @property
    def is_open(self) -> bool:
        return self._session is not None and not self._terminated

    @property
    def engine(self) -> Engine | EncoderEngine:
        if self._session is None:
            raise EngineClosedError("the engine is not open")

        return self._session.engine

    @property
    def conv_template(self) -> Conversation | None:
        is_encoder = isinstance(self._session, EncoderSession)
        template = None if is_encoder else self.model.chat_template
        return template if isinstance(template, Conversation) else None

    @property
    def model(self) -> ModelFacts:
        session = self._session
        if session is None:
            return self._unopened_model()

        if isinstance(session, EncoderSession):
            raise BadRequestError("the model is an encoder, which generates nothing", param="model")

        return session.model

    def _unopened_model(self) -> ModelFacts:
        # What another loader opens, only that loader knows.
        is_over = self._terminated or self._is_unloaded
        if is_over or self._loader is not open_model:
            raise EngineClosedError("the engine is not open")

        self._facts = self._facts or read_facts(self.config)
        return self._facts

    @property
    def memory_plan(self) -> MemoryPlan | None:
        if self._session is None:
            raise EngineClosedError("the engine is not open")

        return _plan_of(self._session)

    @property
    def completed_config(self) -> EngineConfig:
        # Beside what was given, which another model is planned with.
        plan = _plan_of(self._session)
        return self.config if plan is None else plan.complete(self.config)

    async def session(self) -> ModelSession:
        """The open session of a model that generates; the first call opens it."""
        session = await self._open_session()
        if isinstance(session, EncoderSession):
            raise BadRequestError(
                f"the model {session.embedder.model_name!r} is an encoder: it has embeddings only",
                param="model",
            )

        return session

    async def embedder(self) -> Embedder:
        """The encoder of the open session; the first call opens it."""
        session = await self._open_session()
        if isinstance(session, ModelSession):
            raise BadRequestError(
                f"the model {session.model.model_name!r} is a decoder: it has no embeddings",
                param="model",
            )

        return session.embedder

    async def _open_session(self) -> ModelSession | EncoderSession:
        """The open session; the first call opens it, in a task of its own."""
        if self._session is None:
            # One caller loads. If that one is cancelled, the next in line takes over.
            async with self._opening:
                if self._is_unloaded:
                    raise EngineClosedError("the model was unloaded: reload it")

                if self._session is None:
                    return await self._start()

        if self._terminated:
            raise EngineClosedError("the engine was terminated")

        return self._session

    def reset(self) -> None:
        if self._session is not None or self._terminated or self._is_unloaded:
            self.engine.reset()

    async def unload(self) -> None:
        async with self._opening:
            await self._unload()

    async def _unload(self) -> None:
        self._is_unloaded = True
        session, self._session = self._session, None
        if session is not None:
            # The engine ends even if this wait is cancelled.
            await session.task.aclose()

    async def reload(self, model: Model | None) -> None:
        async with self._opening:
            await self._unload()
            if model is not None:
                self.config = replace(self.config, model=fspath(model))

            await self._start()

    async def _start(self) -> ModelSession | EncoderSession:
        session = await self._load()
        session.task.start()
        self._session = session
        self._is_unloaded = False
        await session.task.wait_begun()
        return session

    @asynccontextmanager
    async def scope(self) -> AsyncIterator[None]:
        """Open the session for as long as the scope lasts."""
        async with self._opening:
            if self._session is not None and not self._terminated:
                raise EngineError("the engine is already open")

            session = await self._load()
            self._session = session

        try:
            async with session.task:
                try:
                    yield
                finally:
                    self._terminated = True
                    await self._end_replacement(session)
        finally:
            self._terminated = True

    async def _end_replacement(self, first: ModelSession | EncoderSession) -> None:
        """Free what was loaded instead of the scope's first model."""
        if self._session is not None and self._session is not first:
            with CancelScope(shield=True):
                await self._session.task.aclose()

    def terminate(self) -> None:
        self._terminated = True
        if self._session is not None:
            self._session.task.terminate()

    def is_stepping_here(self) -> bool:
        return self._session is not None and self._session.task.is_stepping_here()

    async def _load(self) -> ModelSession | EncoderSession:
        if self._terminated:
            raise EngineClosedError("the engine was terminated")

        loaded = await self._loader(
            self.config.model,
            device=self._device,
            mode=self.config.mode or "local",
            engine_config=self.config,
            on_progress=self._on_progress,
        )
        if self.config.enable_tracing and isinstance(loaded, LoadedModel):
            loaded.core.enable_trace()

        session = _session_of(loaded, self.config)
        self._facts = None
        if self._terminated:
            session.task.terminate()
            raise EngineClosedError("the engine was terminated")

        return session


def _plan_of(session: ModelSession | EncoderSession | None) -> MemoryPlan | None:
    return session.model.memory_plan if isinstance(session, ModelSession) else None


def _session_of(
    loaded: LoadedModel | LoadedEncoder, config: EngineConfig
) -> ModelSession | EncoderSession:
    if isinstance(loaded, LoadedEncoder):
        return EncoderSession(EncoderEngine(loaded.embedder))

    engine = Engine(loaded.core, max_unread_tokens=config.max_unread_tokens)
    return ModelSession(engine, loaded)
