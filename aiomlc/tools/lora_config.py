"""The configuration of a LoRA adapter in PEFT's format."""

from __future__ import annotations

__all__ = ("LoraConfig", "read_lora_config")

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from aiomlc.errors import ModelLoadError
from aiomlc.validation.json_values import safe_repr
from aiomlc.validation.model_files import read_object

CONFIG_FILE: Final = "adapter_config.json"

# Settings under which the merged weight is another one than that of LoRA or DoRA.
_REFUSED: Final = (
    "alora_invocation_tokens",
    "arrow_config",
    "kasa_config",
    "layer_replication",
    "lora_bias",
    "megatron_config",
    "monteclora_config",
    "target_parameters",
    "trainable_token_indices",
    "use_bdlora",
    "use_qalora",
    "velora_config",
)
# The characters of patterns that are not part of a module's name.
_OPERATORS: Final = frozenset("\\^$*+?()[]{}|")
# Initializations that change the weights of the model, which the adapter then lacks.
_CHANGES_MODEL: Final = ("corda", "loftq", "olora", "pissa", "lora_ga")


@dataclass(frozen=True, slots=True)
class LoraConfig:
    """The ranks and scales of an adapter's modules."""

    path: Path
    rank: int
    alpha: float
    rank_pattern: Mapping[str, float]  #: Ranks of modules by the ends of their names.
    alpha_pattern: Mapping[str, float]
    is_rank_stabilized: bool
    is_dora: bool

    def rank_of(self, module: str) -> int:
        """Return the rank of a module."""
        return int(_of_module(self.rank_pattern, module, self.rank))

    def scale_of(self, module: str) -> float:
        """Return the factor on the product of a module's matrices."""
        rank = self.rank_of(module)
        divisor = math.sqrt(rank) if self.is_rank_stabilized else rank
        return _of_module(self.alpha_pattern, module, self.alpha) / divisor


def read_lora_config(directory: Path) -> LoraConfig:
    """Read `adapter_config.json`.

    Raises:
        ModelNotFoundError: If it does not exist.
        ModelLoadError: If it is not that of a LoRA adapter, or a setting is not supported.
    """
    path = directory / CONFIG_FILE
    values = read_object(path)
    peft_type = values.get("peft_type")
    if peft_type != "LORA":
        raise _error(path, "peft_type", f'must be "LORA", got {safe_repr(peft_type)}')

    for name in _REFUSED:
        if values.get(name):
            raise _error(path, name, f"is not supported, got {safe_repr(values[name])}")

    initialization = values.get("init_lora_weights")
    if isinstance(initialization, str) and initialization.lower().startswith(_CHANGES_MODEL):
        raise _error(
            path,
            "init_lora_weights",
            f"is {initialization!r}, which changes the model's own weights: let PEFT convert the "
            "adapter with save_pretrained(path_initial_model_for_weight_conversion=...)",
        )

    return LoraConfig(
        path,
        rank=_integer(path, values, "r"),
        alpha=_number(path, values, "lora_alpha"),
        rank_pattern=_pattern(path, values, "rank_pattern", _integer),
        alpha_pattern=_pattern(path, values, "alpha_pattern", _number),
        is_rank_stabilized=values.get("use_rslora") is True,
        is_dora=values.get("use_dora") is True,
    )


def _integer(path: Path, values: Mapping[str, Any], name: str) -> int:
    value = values.get(name)
    if type(value) is not int or value <= 0:
        raise _error(path, name, f"must be a positive integer, got {safe_repr(value)}")

    return value


def _number(path: Path, values: Mapping[str, Any], name: str) -> float:
    value: Any = values.get(name)
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not 0 < value < math.inf:
        raise _error(path, name, f"must be a positive number, got {safe_repr(value)}")

    return float(value)


def _pattern(
    path: Path,
    values: Mapping[str, Any],
    name: str,
    read: Callable[[Path, Mapping[str, Any], str], float],
) -> dict[str, float]:
    patterns = values.get(name) or {}
    if not isinstance(patterns, dict):
        raise _error(path, name, f"must be an object, got {safe_repr(patterns)}")

    for pattern in patterns:
        if _OPERATORS & set(pattern.removeprefix("^").replace("\\.", ".")):
            problem = f"has the pattern {pattern!r}: regular expressions are not supported, only "
            raise _error(path, name, f"{problem}the ends of module names")
    return {pattern: read(path, patterns, pattern) for pattern in patterns}


def _of_module(patterns: Mapping[str, float], module: str, default: float) -> float:
    """Return the value of the first pattern that is the end of the module's name, as in PEFT."""
    for pattern, value in patterns.items():
        name = pattern.removeprefix("^").replace("\\.", ".")
        if module == name or (not pattern.startswith("^") and module.endswith(f".{name}")):
            return value
    return default


def _error(path: Path, name: str, problem: str) -> ModelLoadError:
    return ModelLoadError(f'{path}: field "{name}" {problem}', path=path, field=name)
