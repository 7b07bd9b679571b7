"""OpenAI's list of models."""

from __future__ import annotations

__all__ = ("Model", "ModelList")

from collections.abc import Iterator
from typing import Literal

from aiomlc.api.protocol.base import WireModel


class Model(WireModel):
    """A model that an engine serves."""

    id: str  #: The name that responses carry in `model`.
    created: int  #: Unix time in seconds at which the engine was constructed.
    object: Literal["model"] = "model"
    owned_by: str = "aiomlc"
    #: The most tokens of a sequence, prompt and answer; None for an encoder and until the model is
    #: open.
    max_model_len: int | None = None
    #: The sampling parameters of a request that sets none; None as above.
    sampling_defaults: dict[str, int | float] | None = None


class ModelList(WireModel):
    """The models that an engine serves: one."""

    data: list[Model]
    object: Literal["list"] = "list"

    def __iter__(self) -> Iterator[Model]:  # type: ignore[override] # As OpenAI's pages.
        return iter(self.data)
