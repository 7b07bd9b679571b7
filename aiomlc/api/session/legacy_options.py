"""Keyword arguments of MLC LLM's earlier engines, which are fields of `EngineConfig` now."""

from __future__ import annotations

__all__ = ("LegacyOptions", "apply_legacy_options")

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from aiomlc.config import EngineConfig, SpeculativeMode
from aiomlc.errors import BadRequestError
from aiomlc.sampling_params import PARAMETERS
from aiomlc.validation.arguments import check_type
from aiomlc.validation.suggestions import ENGINE_SYNONYMS, suggest


class LegacyOptions(TypedDict, total=False):
    """The legacy keyword arguments; a comment gives the name of the field if it differs."""

    additional_models: Sequence[str | tuple[str, str]] | None
    max_batch_size: int | None  #: `max_num_sequence`
    max_total_sequence_length: int | None
    prefill_chunk_size: int | None
    max_history_size: int | None
    gpu_memory_utilization: float | None
    speculative_mode: SpeculativeMode | None
    spec_draft_length: int | None
    verbose: bool | None


_FIELDS = {name: name for name in LegacyOptions.__annotations__} | {
    "max_batch_size": "max_num_sequence"
}


def apply_legacy_options(config: EngineConfig | None, options: Mapping[str, Any]) -> EngineConfig:
    """Return the configuration with the values of legacy options; None leaves a field unchanged.

    Raises:
        TypeError: If an option is unknown.
        BadRequestError: If a value is invalid, or `config` has another value; `param` names the
            option.
    """
    defaults = EngineConfig()
    config = defaults if config is None else config
    check_type("engine_config", config, EngineConfig, "an EngineConfig")
    changes: dict[str, Any] = {}
    for name, value in options.items():
        if name not in _FIELDS:
            raise TypeError(f"unknown keyword argument {name!r} of the engine{_hint(name)}")

        if value is None:
            continue

        field = _FIELDS[name]
        value = tuple(value) if isinstance(value, list) else value
        configured = getattr(config, field)
        if configured not in (getattr(defaults, field), value):
            raise BadRequestError(
                f'The argument "{name}" of engine constructor is "{value}", while the "{field}" '
                f'field in argument "engine_config" is "{configured}": set only one of them',
                param=name,
            )

        changes[field] = value

    try:
        return dataclasses.replace(config, **changes)
    except BadRequestError as error:
        option = next((name for name in options if _FIELDS[name] == error.param), None)
        if option is None:
            raise

        message = str(error).replace(f"engine_config.{error.param}", option)
        raise BadRequestError(message, param=option) from None


def _hint(name: str) -> str:
    """Return where an unknown keyword argument belongs, or which one may have been meant."""
    field = ENGINE_SYNONYMS.get(name, name)
    if field in {field.name for field in dataclasses.fields(EngineConfig)}:
        return f": it is a field of EngineConfig: engine_config=EngineConfig({field}=...)"

    if name in PARAMETERS:
        return ": it is a parameter of requests: chat.completions.create(..., " + f"{name}=...)"

    return suggest(name, [*_FIELDS, "model", "device", "model_lib", "mode"])
