"""`GenerationConfig`, a pydantic model that can be changed until a request is made of it."""

from __future__ import annotations

import dataclasses
from typing import Any

from pydantic import BaseModel, create_model, model_validator

import aiomlc

_FIELDS: dict[str, Any] = {
    field.name: (Any, field.default) for field in dataclasses.fields(aiomlc.GenerationConfig)
}


class _Base(BaseModel):
    @model_validator(mode="after")
    def _check(self) -> _Base:
        self.frozen()
        return self

    def frozen(self) -> aiomlc.GenerationConfig:
        """Return the parameters as aiomlc's record.

        Raises:
            BadRequestError: If a field is invalid.
        """
        return aiomlc.GenerationConfig(**{name: getattr(self, name) for name in _FIELDS})


GenerationConfig = create_model("GenerationConfig", __base__=_Base, **_FIELDS)
GenerationConfig.__doc__ = "The sampling parameters of a request."


def frozen(config: Any) -> Any:
    """Return parameters for aiomlc; whatever else they are, aiomlc reports it."""
    if isinstance(config, (list, tuple)):
        return [frozen(each) for each in config]

    return (
        aiomlc.GenerationConfig() if config is None else getattr(config, "frozen", lambda: config)()
    )
