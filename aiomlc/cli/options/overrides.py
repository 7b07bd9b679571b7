"""The options of every command that opens a model; `--overrides` has all settings in one text."""

from __future__ import annotations

__all__ = ("ModelOptions", "parse_overrides", "parse_settings")

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aiomlc.cli.options.common import Device, KVCacheDtype, Overrides, Quantization, Shards
from aiomlc.cli.terminal.failures import CommandError
from aiomlc.config import EngineConfig
from aiomlc.validation.suggestions import ENGINE_SYNONYMS, suggest

# MLC LLM's names in --overrides whose fields have another name.
_OVERRIDES = {
    "context_window_size": "max_single_sequence_length",
    "max_total_seq_length": "max_total_sequence_length",
}
_LISTS = frozenset({"additional_models", "allowed_media_domains"})  # Of one item here.
_FLAGS = {"true": True, "false": False}


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """The options of a model's engine."""

    device: Device = "auto"
    quantization: Quantization = None
    kv_cache_dtype: KVCacheDtype = "auto"
    tensor_parallel_shards: Shards = None
    overrides: Overrides = ""

    def config(self, **fields: Any) -> EngineConfig:  # noqa: ANN401 - of any type.
        """Return the configuration with these options, other fields, and what overrides both.

        Raises:
            CommandError: If a setting in `--overrides` is unknown or has no value.
            BadRequestError: If a value is invalid.
        """
        return self.config_with(parse_settings("--overrides", self.overrides), **fields)

    def config_with(self, settings: Mapping[str, Any], **fields: Any) -> EngineConfig:  # noqa: ANN401
        """Return the configuration with these options, other fields, and settings in their place.

        Raises:
            BadRequestError: If a value is invalid.
        """
        names = ("quantization", "kv_cache_dtype", "tensor_parallel_shards")
        fields |= {name: getattr(self, name) for name in names}
        return EngineConfig(**{**fields, **settings})


def parse_settings(option: str, text: str) -> dict[str, Any]:
    """Return the fields of `EngineConfig` in `name=value;name=value`.

    Args:
        option: The option that has the text, for errors.
        text: The settings, also under MLC LLM's names.

    Raises:
        CommandError: If a setting is unknown or has no value.
    """
    known = EngineConfig.__dataclass_fields__
    fields: dict[str, Any] = {}
    for name, value in parse_overrides(text, option).items():
        field = _OVERRIDES.get(name, name)
        if field not in known:
            hint = suggest(name, known, synonyms=ENGINE_SYNONYMS)
            hint = hint or f"; known: {', '.join(known)}"
            raise CommandError(f"{option} has no setting {name!r}{hint}")

        fields[field] = (str(value),) if field in _LISTS else _as_scalar(value)

    return fields


def parse_overrides(text: str, option: str = "--overrides") -> dict[str, int | str]:
    """Return the settings in `name=value;name=value`.

    Raises:
        CommandError: If a setting has no value.
    """
    values: dict[str, int | str] = {}
    for item in filter(None, (part.strip() for part in text.split(";"))):
        name, separator, value = (part.strip() for part in item.partition("="))
        if not separator or not value:
            raise CommandError(f"{option}: a setting must be 'name=value', got {item!r}")

        values[name] = int(value) if value.removeprefix("-").isdecimal() else value
    return values


def _as_scalar(value: int | str) -> bool | int | float | str:
    if isinstance(value, int):
        return value

    try:
        return _FLAGS[value] if value in _FLAGS else float(value)
    except ValueError:
        return value
