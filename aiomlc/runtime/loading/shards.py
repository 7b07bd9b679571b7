"""The shards of a model: how many there are, and whether the model can be divided among them."""

from __future__ import annotations

__all__ = ("divided_model", "require_divisible_formats", "shard_count")

from collections.abc import Iterable, Iterator
from typing import Final

from aiomlc.compiler.parameters import pack_parameters
from aiomlc.config import EngineConfig
from aiomlc.errors import BadRequestError, ModelLoadError
from aiomlc.models import DecoderConfig, decoder_parameters
from aiomlc.models.parameters.matrix_format import MatrixFormat
from aiomlc.models.parameters.packed_parameter import PackedParameter
from aiomlc.runtime.loading.facts import ModelFacts
from aiomlc.runtime.loading.model_directory import ModelDirectory
from aiomlc.validation.json_values import safe_repr

_FIELD: Final = "tensor_parallel_shards"
_MLC_CONFIG: Final = "mlc-chat-config.json"
_CHUNK: Final = 32  # Inputs that kernels round together.
_ROTATED: Final = 64  # Inputs of a group of the packed layout; 32 are rotated together.
_SUPER_GROUP: Final = 256


def shard_count(directory: ModelDirectory, config: EngineConfig) -> int:
    """Return the number of shards: that of the configuration, or else of an MLC directory, or 1.

    Raises:
        ModelLoadError: If the directory has another value than a positive integer.
    """
    if config.tensor_parallel_shards is not None:
        return config.tensor_parallel_shards

    if not directory.is_mlc:
        return 1

    values = directory.files.object(_MLC_CONFIG) or {}
    nested = values.get("model_config")
    count = (nested if isinstance(nested, dict) else values).get(_FIELD, 1)
    if type(count) is not int or count < 1:
        path = directory.files.path(_MLC_CONFIG)
        problem = f"must be an integer >= 1, got {safe_repr(count)}"
        raise ModelLoadError(f"{path}: {_FIELD} {problem}", path=path, field=_FIELD)

    return count


def divided_model(facts: ModelFacts, model: DecoderConfig, config: EngineConfig) -> DecoderConfig:
    """Return the model for the shards that the engine has.

    Raises:
        BadRequestError: If the model cannot be divided; `param` is `tensor_parallel_shards`.
        ModelLoadError: As `shard_count`.
    """
    count = shard_count(facts.directory, config)
    if count == 1:
        return model

    divided = model.with_shards(count)
    quantization = facts.quantization
    if quantization.ordered:
        name = min(quantization.ordered)
        raise _error(count, f"the inputs of {name} are ordered by their groups (desc_act)")

    require_divisible_formats(pack_parameters(decoder_parameters(divided), quantization), count)
    return divided


def require_divisible_formats(packed: Iterable[PackedParameter], count: int) -> None:
    """Require that the formats of a model's matrices allow their division among shards.

    Raises:
        BadRequestError: If they do not; `param` is `tensor_parallel_shards`.
    """
    for parameter in packed:
        if parameter.kind == "matrix" and parameter.split is not None:
            for problem in _problems(parameter):
                raise _error(count, f"{parameter.name} {problem}")


def _problems(parameter: PackedParameter) -> Iterator[str]:
    assert parameter.split is not None
    if parameter.split.axis == "rows":
        if len(parameter.layout) > 1:
            names = ", ".join(name for name, _ in parameter.layout)
            yield f"has rows of several formats ({names}), and is divided by rows"
        return

    columns, shards = parameter.shape[1], parameter.shards
    for name, _ in parameter.layout:
        matrix_format = MatrixFormat.parse(name)
        group = _group(matrix_format)
        if columns % (shards * group):
            yield (
                f"has {columns} columns in groups of {group} ({name}), which must be a multiple of "
                f"{shards * group}"
            )


def _group(matrix_format: MatrixFormat) -> int:
    match matrix_format.family:
        case "q4" | "bf16":
            return _CHUNK
        case "grouped" if matrix_format.scale in ("k8", "k8s"):
            return _SUPER_GROUP
        case "grouped":
            return max(_CHUNK, matrix_format.group)
        case "i4progressive" | "i8rotated":
            return _ROTATED
        case _:
            return 1


def _error(count: int, problem: str) -> BadRequestError:
    return BadRequestError(
        f"engine_config.{_FIELD} = {count} is not possible for this model: {problem}; use 1",
        param=_FIELD,
    )
