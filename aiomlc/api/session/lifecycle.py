"""The lifecycle of an engine's model: it serves, is reloaded, unloaded and terminated."""

from __future__ import annotations

__all__ = ("EngineLifecycle",)

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from os import fspath
from typing import TYPE_CHECKING, final

from anyio import CancelScope, Lock
from anyio.lowlevel import checkpoint

from aiomlc.api.session.loader import Loader, ModelPath, require_model
from aiomlc.api.session.model_files import ENCODER_MESSAGE, ModelInfo
from aiomlc.api.session.opening import LoadLock, ModelOpener, Session, session_name
from aiomlc.api.session.session import EncoderSession, ModelSession
from aiomlc.config import EngineConfig
from aiomlc.errors import BadRequestError, EngineClosedError, EngineError
from aiomlc.runtime.concurrency.interrupts import uninterruptible
from aiomlc.runtime.embedding.encoder_engine import EncoderEngine
from aiomlc.runtime.engine.engine_client import EngineClient
from aiomlc.runtime.engine.events import EventHub
from aiomlc.runtime.loading.loaded_model import LoadedModel
from aiomlc.runtime.loading.progress import LoadProgress
from aiomlc.runtime.templates.conversation import Conversation

if TYPE_CHECKING:
    from aiomlc.runtime.embedding.embedder import EncoderTask
    from aiomlc.runtime.loading.memory_plan import MemoryPlan

_KINDS: Mapping[EncoderTask, str] = {
    "embedding": "an encoder",
    "classification": "a classifier",
    "transcription": "a speech model",
}
_USES: Mapping[EncoderTask, str] = {
    "embedding": "embeddings",
    "ranking": "rerank and score",
    "classification": "classify",
    "transcription": "transcribe",
}


@final
class EngineLifecycle:
    """The owner of an engine's model and task.

    A scope or the first request opens the model. The engine, its `chat` and each stream refer to
    this object, but the task does not: when all of them have been garbage collected, the task is
    stopped.
    """

    def __init__(
        self,
        device: str,
        config: EngineConfig,
        on_progress: Callable[[LoadProgress], None] | None,
        loader: Loader | None,
    ) -> None:
        self.config: EngineConfig = config
        self._session: Session | None = None
        self._lock = LoadLock()
        self._terminated = False
        self._is_unloaded = False
        self.events: EventHub = EventHub()
        self._opener = ModelOpener(device, on_progress, loader, self.events)
        if loader is None:
            require_model(config.model)

    def __del__(self) -> None:
        if not hasattr(self, "events"):
            return  # An interrupt ended the constructor.

        if self._session is not None:
            self._session.task.stop()

        self.events.close()

    def _load_lock(self) -> Lock:
        """Return the lock to hold while loading or unloading the model.

        Raises:
            EngineClosedError: If the engine belongs to another event loop.
        """
        return self._lock.of_loop(
            is_kept=self._session is not None and not self._session.task.is_over
        )

    @property
    def is_open(self) -> bool:
        """Whether the model is open and the engine was not terminated."""
        return self._session is not None and not self._terminated

    @property
    def engine(self) -> EngineClient | EncoderEngine:
        """The engine of the open model.

        Raises:
            EngineClosedError: If no model is open.
        """
        if self._session is None:
            raise EngineClosedError("the engine is not open")

        return self._session.engine

    @property
    def conv_template(self) -> Conversation | None:
        """The conversation template; None for an encoder and for a Jinja template."""
        is_encoder = isinstance(self._session, EncoderSession)
        template = None if is_encoder else self.model.chat_template
        return template if isinstance(template, Conversation) else None

    @property
    def model(self) -> ModelInfo:
        """The properties of the model, whether it is open or not.

        Raises:
            BadRequestError: If the model is an encoder.
            EngineClosedError: If no model is open and a custom loader chooses the model.
            ModelLoadError: If a file of a model that is not open is missing or invalid.
        """
        session = self._session
        if session is None:
            return self._unopened_model()

        if isinstance(session, EncoderSession):
            raise BadRequestError(ENCODER_MESSAGE, param="model")

        return session.model

    @property
    def loaded_model(self) -> LoadedModel | None:
        """The open decoder; None for an encoder, and while no model is open."""
        return self._session.model if isinstance(self._session, ModelSession) else None

    @property
    def model_name(self) -> str:
        """The name of the model, whether it is open or not; the same errors as `model`."""
        session = self._session
        return session_name(session) if session else self._unopened_model().model_name

    def _unopened_model(self) -> ModelInfo:
        if self._terminated or self._is_unloaded:
            raise EngineClosedError("the engine is not open")

        return self._opener.model_info(self.config)

    @property
    def memory_plan(self) -> MemoryPlan | None:
        """The memory plan of the open model; None for an encoder and for `mock://echo`.

        Raises:
            EngineClosedError: If no model is open.
        """
        if self._session is None:
            raise EngineClosedError("the engine is not open")

        return _memory_plan(self._session)

    @property
    def completed_config(self) -> EngineConfig:
        """The configuration; while a model is open, with the sizes from its memory plan."""
        # `self.config` is unchanged, since a reloaded model gets another plan.
        plan = _memory_plan(self._session)
        return self.config if plan is None else plan.complete(self.config)

    async def session(self) -> ModelSession:
        """Return the session of a decoder; the first call opens the model.

        Raises:
            BadRequestError: If the model is an encoder.
            EngineClosedError: If the engine was terminated, or the model unloaded.
            ModelLoadError: If the model cannot be opened.
        """
        session = await self._open_session()
        if isinstance(session, EncoderSession):
            tasks = session.model.tasks
            raise BadRequestError(
                f"the model {session.model.model_name!r} is {_KINDS[tasks[0]]}, which supports "
                f"only {', '.join(_USES[task] for task in tasks)}",
                param="model",
            )

        return session

    async def transcriber(self) -> ModelSession | EncoderEngine:
        """Return what transcribes: the session of a decoder that reads audio, or the engine of a
        speech model; the first call opens the model.

        Raises:
            BadRequestError: If the model does not transcribe.
            EngineClosedError: If the engine was terminated, or the model unloaded.
            ModelLoadError: If the model cannot be opened.
        """
        session = await self._open_session()
        if isinstance(session, ModelSession) and session.model.audio is not None:
            return session

        return await self.encoder("transcription")

    async def encoder(self, task: EncoderTask) -> EncoderEngine:
        """Return the engine of a model for `task`; the first call opens the model.

        Raises:
            BadRequestError: If the model is for another task.
            EngineClosedError: If the engine was terminated, or the model unloaded.
            ModelLoadError: If the model cannot be opened.
        """
        session = await self._open_session()
        if isinstance(session, EncoderSession) and task in session.model.tasks:
            return session.engine

        kind = "a decoder" if isinstance(session, ModelSession) else _KINDS[session.model.tasks[0]]
        raise BadRequestError(
            f"the model {session.model.model_name!r} is {kind}, which does not support "
            f"{_USES[task]}",
            param="model",
        )

    @uninterruptible
    async def _open_session(self) -> Session:
        """Return the open session; the first call opens it and starts its task."""
        if self._session is None:
            # One caller loads the model; if that caller is cancelled, the next one loads it.
            async with self._load_lock():
                if self._is_unloaded:
                    raise EngineClosedError("the model was unloaded: call reload first")

                if self._session is None:
                    return await self._start()

        if self._terminated:
            raise EngineClosedError

        return self._session

    async def open_first(self) -> None:
        """Open the model unless it was opened before."""
        await checkpoint()
        if self._session is None:
            await self._open_session()

    def reset(self) -> None:
        """Abort every request and reset the cache and the counters, if a model was opened."""
        if self._session is not None or self._terminated or self._is_unloaded:
            self.engine.reset()

    @uninterruptible
    async def unload(self) -> None:
        """End every request and free the model."""
        async with self._load_lock():
            await self._unload()

    async def _unload(self) -> None:
        self._is_unloaded = True
        session, self._session = self._session, None
        if session is not None:
            self.events.emit("unloaded", model=session_name(session))
            # The engine is closed even if this wait is cancelled.
            await session.task.aclose()

    @uninterruptible
    async def reload(self, model: ModelPath | None) -> None:
        """Unload the model and open it again, or another one, which must exist."""
        async with self._load_lock():
            config = self.config
            if model is not None:
                config = replace(config, model=fspath(model), model_lib=None)
            self._opener.require_config(config)
            await self._unload()
            self.config = config

            await self._start()

    async def _start(self) -> Session:
        session = await self._load()
        session.task.start()
        self._adopt(session)
        self._is_unloaded = False
        await session.task.wait_started()
        return session

    @asynccontextmanager
    async def scope(self) -> AsyncIterator[None]:
        """Open the model; leaving the scope terminates the engine.

        Raises:
            EngineError: If the engine is already open, or was terminated.
            ModelLoadError: If the model cannot be opened.
        """
        async with self._load_lock():
            if self._session is not None and not self._terminated:
                raise EngineError("the engine is already open")

            session = await self._load()
            self._adopt(session)

        try:
            async with session.task:
                try:
                    yield
                finally:
                    self._terminated = True
                    await self._close_reloaded(session)
        finally:
            self._terminated = True
            self.events.close()

    async def _close_reloaded(self, original: Session) -> None:
        """End the session that `reload` put in place of the scope's original one."""
        if self._session is not None and self._session is not original:
            with CancelScope(shield=True):
                await self._session.task.aclose()

    @uninterruptible
    def terminate(self) -> None:
        """End every request and free the model, for good. Thread-safe."""
        self._terminated = True
        session = self._session  # Read once: `unload` may run in another thread.
        if session is not None:
            session.task.terminate()

        self.events.close()

    def is_stepping_here(self) -> bool:
        """Return whether the calling thread is the step thread."""
        return self._session is not None and self._session.task.is_stepping_here()

    def _adopt(self, session: Session) -> None:
        self._session = session
        if self._terminated:  # By another thread, which may not have seen the session.
            session.task.terminate()
            raise EngineClosedError

    async def _load(self) -> Session:
        if self._terminated:
            raise EngineClosedError

        return await self._opener.open(self.config)


def _memory_plan(session: Session | None) -> MemoryPlan | None:
    return session.model.memory_plan if isinstance(session, ModelSession) else None
