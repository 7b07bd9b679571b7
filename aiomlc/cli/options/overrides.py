"""The options of every command that opens a model; `--overrides` has all settings in one text."""

from __future__ import annotations

__all__ = ("ModelOptions", "parse_overrides")

from dataclasses import dataclass
from typing import Any

from aiomlc.cli.options.common import Device, KVCacheDtype, Overrides, Quantization
from aiomlc.cli.terminal.failures import CommandError
from aiomlc.config import EngineConfig
from aiomlc.validation.suggestions import ENGINE_SYNONYMS, suggest

# MLC LLM's names in --overrides whose fields have another name.
_OVERRIDES = {
    "context_window_size": "max_single_sequence_length",
    "max_total_seq_length": "max_total_sequence_length",
}


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """The options of a model's engine."""

    device: Device = "auto"
    quantization: Quantization = None
    kv_cache_dtype: KVCacheDtype = "auto"
    overrides: Overrides = ""

    def config(self, **fields: Any) -> EngineConfig:  # noqa: ANN401 - of any type.
        """Return the configuration with these options, other fields, and what overrides both.

        Raises:
            CommandError: If a setting in `--overrides` is unknown or has no value.
            BadRequestError: If a value is invalid.
        """
        fields |= {"quantization": self.quantization, "kv_cache_dtype": self.kv_cache_dtype}
        known = EngineConfig.__dataclass_fields__
        for name, value in parse_overrides(self.overrides).items():
            field = _OVERRIDES.get(name, name)
            if field not in known:
                hint = suggest(name, known, synonyms=ENGINE_SYNONYMS)
                hint = hint or f"; known: {', '.join(known)}"
                raise CommandError(f"--overrides has no setting {name!r}{hint}")

            fields[field] = _as_number(value)

        return EngineConfig(**fields)


def parse_overrides(text: str) -> dict[str, int | str]:
    """Return the settings in `name=value;name=value`.

    Raises:
        CommandError: If a setting has no value.
    """
    values: dict[str, int | str] = {}
    for item in filter(None, (part.strip() for part in text.split(";"))):
        name, separator, value = (part.strip() for part in item.partition("="))
        if not separator or not value:
            raise CommandError(f"--overrides must be 'name=value;name=value', got {item!r}")

        values[name] = int(value) if value.lstrip("-").isdecimal() else value
    return values


def _as_number(value: int | str) -> int | float | str:
    try:
        return value if isinstance(value, int) else float(value)
    except ValueError:
        return value
