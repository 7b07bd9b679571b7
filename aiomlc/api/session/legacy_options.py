"""The constructor's keywords of upstream's earlier releases, which are fields of `EngineConfig`."""

from __future__ import annotations

__all__ = ("LegacyOptions", "apply_legacy_options")

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from aiomlc.config import EngineConfig, SpeculativeMode
from aiomlc.errors import BadRequestError
from aiomlc.validation.arguments import check_type


class LegacyOptions(TypedDict, total=False):
    """What is now a field of `engine_config`, by the same name or the one that is said here."""

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
    """The configuration with these keywords in it; None leaves a field as it is.

    Raises:
        TypeError: a keyword is unknown.
        BadRequestError: a value is refused, or the configuration has another.
    """
    defaults = EngineConfig()
    config = defaults if config is None else config
    check_type("engine_config", config, EngineConfig, "an EngineConfig")
    changes: dict[str, Any] = {}
    for name, value in options.items():
        if name not in _FIELDS:
            raise TypeError(f"the engine has no keyword argument {name!r}")

        if value is None:
            continue

        field = _FIELDS[name]
        wanted = tuple(value) if isinstance(value, list) else value
        configured = getattr(config, field)
        if configured not in (getattr(defaults, field), wanted):
            raise BadRequestError(
                f'The argument "{name}" of engine constructor is "{value}", while the "{field}" '
                f'field in argument "engine_config" is "{configured}": give one of them',
                param=name,
            )

        changes[field] = wanted

    try:
        return dataclasses.replace(config, **changes)
    except BadRequestError as error:
        former = next((name for name in options if _FIELDS[name] == error.param), None)
        if former in (None, error.param):
            raise

        raise BadRequestError(f"{former}: {error}", param=former) from error
