"""The models of a server, by name, and their state."""

from __future__ import annotations

__all__ = ("ModelRegistry", "Served", "ServedModel", "last_part", "model_name", "to_registry")

import time
from collections.abc import Iterator, Mapping
from os import PathLike, fspath
from typing import Literal, TypeAlias, final

from anyio import EndOfStream, Event, WouldBlock, create_task_group
from anyio.lowlevel import checkpoint

from aiomlc.api.engines.async_engine import AsyncMLCEngine
from aiomlc.api.protocol.model import Model
from aiomlc.config import BUNDLED_NAME, ECHO, EngineConfig
from aiomlc.errors import BadRequestError, EngineClosedError, EngineError
from aiomlc.runtime.concurrency.event_loop import spawn_system_task
from aiomlc.serve.http.http_errors import HTTPError
from aiomlc.validation.arguments import wrong_type
from aiomlc.validation.json_values import safe_repr

#: A model to serve: an engine, open or not, or the configuration or directory for a new one.
Served: TypeAlias = AsyncMLCEngine | EngineConfig | str | PathLike[str]
State = Literal["unloaded", "loaded", "closed", "dead"]

_STATES: Mapping[str, State] = {
    "loaded": "loaded",
    "unloaded": "unloaded",
    "terminated": "closed",
    "dead": "dead",
}


@final
class ServedModel:
    """An engine, the name of its model, and its state."""

    def __init__(self, name: str, engine: AsyncMLCEngine) -> None:
        self.name = name
        self.engine = engine
        self._created = int(time.time())
        self._events = engine.events(buffer_size=16)
        self._state: State = "loaded" if is_open(engine) else "unloaded"
        self._opening: _Opening | None = None

    @property
    def state(self) -> State:
        """The state of the engine."""
        while self._state not in ("dead", "closed"):
            try:
                event = self._events.receive_nowait()
            except (WouldBlock, EndOfStream):
                break

            self._state = _STATES.get(event.type, self._state)

        return self._state

    async def open(self) -> None:
        """Open the engine unless it is open.

        Requests wait for the same opening, which goes on when one of them is cancelled: a model
        may take longer to load than its clients wait.

        Raises:
            EngineError: If the engine was terminated, or its model unloaded.
            ModelLoadError: If the model cannot be opened.
        """
        if self.state == "loaded":
            return

        opening = self._opening
        if opening is None or opening.is_over.is_set():
            opening = self._opening = _Opening(self.engine)
        await opening.is_over.wait()
        if opening.failure is not None:
            raise opening.failure

    def answers_to(self, name: object) -> bool:
        """Return whether this is the name of the model, or that by which it is opened."""
        return name == self.name or (bool(name) and name == self.engine.engine_config.model)

    def description(self) -> Model:
        """Return OpenAI's object of the model."""
        return self.engine.models.describe(self.name, self._created)


@final
class _Opening:
    """The task that opens an engine, and how that ended."""

    def __init__(self, engine: AsyncMLCEngine) -> None:
        self.failure: Exception | None = None
        self.is_over = Event()
        self._engine = engine
        self._task = spawn_system_task(self._run, name="aiomlc open")

    async def _run(self) -> None:
        try:
            await self._engine.metrics()
        except Exception as error:  # noqa: BLE001 - raised by those who wait.
            self.failure = error
        finally:
            self.is_over.set()


@final
class ModelRegistry:
    """The models of a server.

    Engines that are not open are opened by `open`, or by the first request for each. `terminate`
    closes these; engines that were open before are left open.
    """

    def __init__(self, engines: Mapping[str, AsyncMLCEngine]) -> None:
        self._models = {name: ServedModel(name, engine) for name, engine in engines.items()}
        self._owned = [model for model in self if model.state == "unloaded"]

    def __iter__(self) -> Iterator[ServedModel]:
        return iter(self._models.values())

    def find(self, name: object, default: str | None = None) -> ServedModel:
        """Return the model that a request names, or `default` if it names none that is served.

        A server of one model accepts any name, as MLC LLM does, and none.

        Raises:
            HTTPError: If there is no such model (404), or several and no name (400).
        """
        if len(self._models) == 1:
            return next(iter(self))

        if default is not None and not self._serves(name):
            return self.get(default)

        if name is None:
            raise HTTPError(400, f"model: is required; served: {self._names()}", param="model")

        return self.get(name)

    def get(self, name: object) -> ServedModel:
        """Return the model of this name, which may also be the name by which it is opened.

        Raises:
            HTTPError: If there is no such model (404).
        """
        for model in self:
            if model.answers_to(name):
                return model

        raise HTTPError(
            404,
            f"model {safe_repr(name)} is not served; served: {self._names()}",
            param="model",
            code="model_not_found",
        )

    async def open(self) -> None:
        """Open the models that are not open.

        Raises:
            ModelLoadError: If a model cannot be opened.
        """
        for model in self._owned:
            await model.engine.metrics()

    async def abort_requests(self) -> None:
        """End the requests of every open engine; their readers get `RequestAbortedError`."""
        async with create_task_group() as tasks:
            for model in self:
                if model.state == "loaded":
                    tasks.start_soon(_abort_requests, model.engine)

    def terminate(self) -> None:
        """Close the engines that were not open when they were given to the server."""
        for model in self._owned:
            model.engine.terminate()

    def _serves(self, name: object) -> bool:
        return any(model.answers_to(name) for model in self)

    def _names(self) -> str:
        return ", ".join(map(repr, self._models))


def to_registry(models: Served | Mapping[str, Served]) -> ModelRegistry:
    """Return the registry of a model, or of models by name.

    Raises:
        BadRequestError: If an argument has the wrong type, or there is no model.
        ModelNotFoundError: If a directory does not exist.
    """
    if not isinstance(models, Mapping):
        engine = _to_engine(models)
        return ModelRegistry({model_name(engine): engine})

    if not models:
        raise BadRequestError("models: must name at least one model", param="models")

    return ModelRegistry({name: _to_engine(model) for name, model in models.items()})


def is_open(engine: AsyncMLCEngine) -> bool:
    """Return whether the model of an engine is open."""
    try:
        engine.statistics()
    except EngineClosedError:
        return False

    return True


async def _abort_requests(engine: AsyncMLCEngine) -> None:
    try:
        await engine.drain(0)
        engine.resume()
    except EngineError:  # It has ended, and with it its requests.
        await checkpoint()


def _to_engine(model: Served) -> AsyncMLCEngine:
    if isinstance(model, AsyncMLCEngine):
        return model

    if isinstance(model, EngineConfig):
        return AsyncMLCEngine(
            model.model,
            model_lib=model.model_lib,
            mode=model.mode or "local",
            engine_config=model,
        )

    if isinstance(model, (str, PathLike)):
        return AsyncMLCEngine(fspath(model))

    raise wrong_type("models", model, "an AsyncMLCEngine, an EngineConfig or the name of a model")


def model_name(engine: AsyncMLCEngine) -> str:
    """Return the last part of the model's name: `HF://user/name` is `name`."""
    model = engine.engine_config.model
    if model is None:
        return BUNDLED_NAME

    return last_part(model)


def last_part(model: str) -> str:
    """Return the last part of a model's path or repository."""
    return model if model == ECHO else model.rstrip("/").rpartition("/")[2]
