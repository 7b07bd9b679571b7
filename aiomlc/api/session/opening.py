"""The opening of an engine's model: its loader, its events, and the lock that is held meanwhile."""

from __future__ import annotations

__all__ = ("LoadLock", "ModelOpener", "Session", "session_name")

from collections.abc import Callable
from dataclasses import replace
from threading import Lock as ThreadLock
from typing import TypeAlias, final

from anyio import Lock

from aiomlc.api.session import model_files
from aiomlc.api.session.loader import Loader, open_model, require_config
from aiomlc.api.session.session import EncoderSession, ModelSession
from aiomlc.config import EngineConfig
from aiomlc.errors import EngineClosedError
from aiomlc.runtime.audio.limits import AudioLimits
from aiomlc.runtime.concurrency.event_loop import check_loop, running_loop
from aiomlc.runtime.embedding.encoder_engine import EncoderEngine
from aiomlc.runtime.engine.engine_client import EngineClient
from aiomlc.runtime.engine.events import EventHub
from aiomlc.runtime.images.sources import ImageSources
from aiomlc.runtime.loading.loaded_model import LoadedEncoder
from aiomlc.runtime.loading.progress import LoadProgress

Session: TypeAlias = ModelSession | EncoderSession


@final
class LoadLock:
    """The lock of loading and unloading a model, which belongs to the engine's event loop."""

    def __init__(self) -> None:
        self._guard = ThreadLock()  # Against other event loops.
        self._loop: object = None  # The event loop that `_lock` belongs to.
        self._lock = Lock()

    def of_loop(self, *, is_kept: bool) -> Lock:
        """Return the lock for the running event loop.

        Args:
            is_kept: Whether a model is open, so that the engine still belongs to its event loop.

        Raises:
            EngineClosedError: If the engine belongs to another event loop.
        """
        # Created here, since the constructor may run outside of the engine's event loop.
        loop = running_loop()
        with self._guard:
            if self._loop is not loop and not is_kept and not self._lock.locked():
                self._loop, self._lock = loop, Lock()

            check_loop(self._loop)
            return self._lock


@final
class ModelOpener:
    """Opens the model of an engine by its loader."""

    def __init__(
        self,
        device: str,
        on_progress: Callable[[LoadProgress], None] | None,
        loader: Loader | None,
        events: EventHub,
    ) -> None:
        self._device = device
        self._on_progress = on_progress
        self._loader = loader or open_model
        self._events = events
        self._model_info: model_files.ModelInfo | None = None  # While the model is not open.

    def model_info(self, config: EngineConfig) -> model_files.ModelInfo:
        """Return the properties of a model that is not open.

        Raises:
            EngineClosedError: If a custom loader chooses the model.
            ModelLoadError: If a file of the model is missing or invalid.
        """
        if self._loader is not open_model:  # It may open another than the configuration names.
            raise EngineClosedError("the engine is not open")

        self._model_info = self._model_info or model_files.model_info(config)
        return self._model_info

    def require_config(self, config: EngineConfig) -> None:
        """Require that the model exists, unless a custom loader chooses it."""
        if self._loader is open_model:
            require_config(config.model)

    async def open(self, config: EngineConfig) -> Session:
        """Open the model, and return its session.

        Raises:
            BadRequestError: If a setting of images is invalid.
            ModelLoadError: If the model cannot be opened.
        """
        sources = ImageSources.from_config(config)
        self._events.emit("loading", model=config.model)
        try:
            loaded = await self._loader(
                config.model,
                device=self._device,
                mode=config.mode or "local",
                engine_config=config,
                on_progress=self._on_progress,
            )
        except Exception as error:
            self._events.emit("load_failed", model=config.model, error=error)
            raise

        session: Session
        if isinstance(loaded, LoadedEncoder):
            session = EncoderSession(EncoderEngine(loaded.model, self._events, sources))
        else:
            if config.enable_tracing:
                loaded.core.enable_trace()

            if config.split_special_tokens:
                loaded = replace(loaded, splits_special_tokens=True)

            max_unread = config.max_unread_tokens
            engine = EngineClient(loaded.core, max_unread_tokens=max_unread, events=self._events)
            limits = AudioLimits(max_seconds=config.max_audio_seconds)
            session = ModelSession(engine, loaded, sources, limits)

        self._events.emit("loaded", model=session_name(session))
        self._model_info = None
        return session


def session_name(session: Session) -> str:
    """Return the name of an open model."""
    return session.model.model_name
