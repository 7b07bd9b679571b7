"""`engine.models`: the model that an engine serves."""

from __future__ import annotations

__all__ = ("AsyncModels",)

import time
from collections.abc import Mapping
from typing import Any, Protocol, final

from anyio.lowlevel import checkpoint

from aiomlc.api.protocol.model import Model, ModelList
from aiomlc.api.streams.visible_names import hides
from aiomlc.errors import ModelNotFoundError
from aiomlc.runtime.loading.loaded_model import LoadedModel
from aiomlc.sampling_params import MODEL_DEFAULTS, PARAMETERS
from aiomlc.validation.arguments import plain_str

_DEFAULTS: Mapping[str, Any] = {
    name: getattr(PARAMETERS[name], "default", None) for name in MODEL_DEFAULTS
}


class NamesModel(Protocol):
    """An object that has the name of the model."""

    @property
    def model_name(self) -> str:
        """The name of the model, whether it is open or not."""
        ...

    @property
    def loaded_model(self) -> LoadedModel | None:
        """The open decoder; None for an encoder, and while no model is open."""
        ...


@hides("describe")
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
        return self.describe(self._service.model_name, self._created)

    def describe(self, name: str, created: int) -> Model:
        """Return the object of the model under a name, with what is known of an open model."""
        model = self._service.loaded_model
        if model is None:
            return Model(id=name, created=created)

        options = model.default_options
        values: dict[str, Any] = {name: getattr(options, name) for name in MODEL_DEFAULTS}
        given = {name: value for name, value in values.items() if value is not None}
        return Model(
            id=name,
            created=created,
            max_model_len=model.context_window,
            sampling_defaults={**_DEFAULTS, **given},
        )
