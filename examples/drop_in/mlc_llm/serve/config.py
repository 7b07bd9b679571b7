"""`EngineConfig`, which can be changed until an engine takes it."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import aiomlc

# Any host with public addresses may be asked for images, as in MLC LLM.
_DEFAULTS = {"allowed_media_domains": ("*",)}
_FIELDS: list[Any] = [
    (field.name, Any, dataclasses.field(default=_DEFAULTS.get(field.name, field.default)))
    for field in dataclasses.fields(aiomlc.EngineConfig)
]


class EngineConfig(dataclasses.make_dataclass("EngineConfig", _FIELDS)):  # type: ignore[misc]
    """The settings of an engine; the constructor of the engine checks them."""

    def __init__(self, **values: Any) -> None:
        super().__init__(**values)
        self.additional_models = list(self.additional_models)
        self.frozen()

    def frozen(self, mode: str = "server", **legacy: Any) -> aiomlc.EngineConfig:
        """Return the settings as aiomlc's record.

        Args:
            mode: The mode of the engine, which decides the batch size as in MLC LLM.
            legacy: Arguments of the engine that are settings.

        Raises:
            BadRequestError: If a field is out of range or not supported.
        """
        values = {**vars(self), "additional_models": tuple(self.additional_models)}
        if self.step_token_budget is None and self.prefill_mode == "hybrid":
            # A step of MLC LLM takes all prompts that fit its chunk.
            chunk = self.prefill_chunk_size or legacy.get("prefill_chunk_size")
            values["step_token_budget"] = chunk or _CHUNK
        sizes = (self.max_num_sequence, legacy.get("max_batch_size"))
        if mode == "local" and sizes == (None, None):
            values["max_num_sequence"] = _LOCAL_SEQUENCES

        return aiomlc.EngineConfig(**values)

    @property
    def draft_model(self) -> tuple[str, str | None] | None:
        """The draft model of `additional_models` and the library given for it, if any."""
        return self.frozen().draft_model

    def asjson(self) -> str:
        """Return the settings as a JSON object."""
        self.frozen()
        return json.dumps(vars(self))

    @classmethod
    def from_json(cls, json_str: str) -> EngineConfig:
        """Read a JSON object with settings."""
        return thawed(aiomlc.EngineConfig.from_json(json_str))


_CHUNK = 2048  # At most the engine's own chunk counts.
_LOCAL_SEQUENCES = 4


def freeze(settings: dict[str, Any]) -> None:
    """Replace the configuration in an engine's arguments by one of aiomlc.

    Whatever else it is, aiomlc reports it.
    """
    config = settings.get("engine_config")
    if config is None:
        config = EngineConfig()
    if isinstance(config, EngineConfig):
        legacy = {name: settings.get(name) for name in ("prefill_chunk_size", "max_batch_size")}
        config = config.frozen(settings.get("mode", "local"), **legacy)

    settings["engine_config"] = config


def thawed(config: aiomlc.EngineConfig) -> EngineConfig:
    """Return a configuration of aiomlc as one that can be changed."""
    names = [field.name for field in dataclasses.fields(config)]
    return EngineConfig(**{name: getattr(config, name) for name in names})
