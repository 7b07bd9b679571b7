"""`ServerContext`: the engines of the server in this process."""

from __future__ import annotations

from typing import Any, ClassVar, Self


class ServerContext:
    """The engines that the applications of `mlc_llm.serve.entrypoints` serve."""

    server_context: ClassVar[ServerContext | None] = None
    enable_debug: bool = False
    api_key: str | None = None

    def __init__(self) -> None:
        self._models: dict[str, Any] = {}
        self._embedding_engines: dict[str, Any] = {}

    def __enter__(self) -> Self:
        if ServerContext.server_context is not None:
            raise RuntimeError("Server context already exists.")

        ServerContext.server_context = self
        return self

    def __exit__(self, *exc_info: object) -> None:
        for engine in [*self._models.values(), *self._embedding_engines.values()]:
            engine.terminate()

        ServerContext.server_context = None

    @staticmethod
    def current() -> ServerContext | None:
        """Return the context of this process."""
        return ServerContext.server_context

    def add_model(self, hosted_model: str, engine: Any) -> None:
        """Serve an engine under a name."""
        _add(self._models, hosted_model, engine)

    def add_embedding_engine(self, hosted_model: str, engine: Any) -> None:
        """Serve an engine of embeddings under a name."""
        _add(self._embedding_engines, hosted_model, engine)

    def get_engine(self, model: str | None) -> Any:
        """Return the engine of a name, or the only one."""
        return _find(self._models, model)

    def get_embedding_engine(self, model: str | None) -> Any:
        """Return the engine of embeddings of a name, or the only one."""
        return _find(self._embedding_engines, model)

    def get_model_list(self) -> list[str]:
        """Return the names of all engines."""
        return [*self._models, *self._embedding_engines]


def _add(engines: dict[str, Any], name: str, engine: Any) -> None:
    if name in engines:
        raise RuntimeError(f"Model {name} already running.")

    engines[name] = engine


def _find(engines: dict[str, Any], name: str | None) -> Any:
    return next(iter(engines.values())) if len(engines) == 1 else engines.get(name or "")
