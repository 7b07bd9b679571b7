"""`engine.models`: the model that an engine serves."""

from __future__ import annotations

__all__ = ("AsyncModels",)

import time
from typing import Protocol, final

from anyio.lowlevel import checkpoint

from aiomlc.api.protocol.model import Model, ModelList
from aiomlc.errors import ModelNotFoundError
from aiomlc.validation.arguments import plain_str


class NamesModel(Protocol):
    """What knows the name of the model."""

    @property
    def model_name(self) -> str:
        """The name of the model, whether it is open or not."""
        ...


@final
class AsyncModels:
    """`engine.models`."""

    def __init__(self, service: NamesModel) -> None:
        self._service = service
        self._created = int(time.time())

    async def list(self) -> ModelList:
        """Return the model that the engine serves, without opening it.

        Raises:
            EngineClosedError: If the engine was terminated, or the model unloaded.
            ModelNotFoundError: If the model's directory does not exist.
        """
        await checkpoint()
        return ModelList(data=[self._model()])

    async def retrieve(self, model: str) -> Model:
        """Return a model by its id.

        Raises:
            EngineClosedError: If the engine was terminated, or the model unloaded.
            ModelNotFoundError: If the engine serves another model.
        """
        name = plain_str("model", model)
        await checkpoint()
        served = self._model()
        if name != served.id:
            raise ModelNotFoundError(
                f"model {name!r} is not served; served: {served.id!r}", field="model"
            )

        return served

    def _model(self) -> Model:
        return Model(id=self._service.model_name, created=self._created)
