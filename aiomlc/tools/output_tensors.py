"""The tensors that an MLC directory has for a checkpoint, in their order."""

from __future__ import annotations

__all__ = ("output_tensors",)

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from aiomlc.errors import BadRequestError
from aiomlc.models import ModelConfig, Parameter, VisionConfig, vision_parameters
from aiomlc.models.parameters.parameter import source_runs
from aiomlc.tools.kept_tensors import kept_tensors
from aiomlc.tools.mlc_format import MLCFormat, ModelDtype
from aiomlc.tools.output_tensor import OutputTensor, Rows, Storage
from aiomlc.weights.formats.safetensors import INDEX_NAME
from aiomlc.weights.formats.source import Source, SourceTensor, read_index
from aiomlc.weights.storage.stored_matrix import FLOAT_TYPES

# Biases that MLC LLM keeps in float32 in every quantization, by model type.
_FLOAT32_BIASES = {"gpt_neox": (".mlp.dense_h_to_4h.bias", ".mlp.dense_4h_to_h.bias")}
_HEADS = ("lm_head",)
# Beginnings of the names of LLaVA's tensors.
_LANGUAGE = "language_model."
_TOWER, _MLC_TOWER = "vision_tower.", "vision_tower.vision_model."
_PROJECTOR = "multi_modal_projector."
_EMBEDDINGS = ("model.embed_tokens", "embeddings.")


def output_tensors(
    parameters: Sequence[Parameter],
    config: ModelConfig,
    source: Source,
    mlc_format: MLCFormat,
    vision: VisionConfig | None = None,
) -> list[OutputTensor]:
    """Return the tensors to write, in the order in which MLC LLM's converter writes them.

    That is the order in which the checkpoint lists the first tensor of each.

    Args:
        vision: The tower of LLaVA, whose tensors are written, too.

    Raises:
        BadRequestError: If the format does not support the model.
    """
    if vision is not None and mlc_format.is_progressive:
        raise BadRequestError(
            f"quantization {mlc_format.name} does not support LLaVA; choose one of MLC LLM's, or "
            "open the checkpoint itself",
            param="quantization",
        )

    tensors = [
        tensor
        for parameter in parameters
        for tensor in _tensors(parameter, config, source, mlc_format)
    ]
    if vision is not None:
        tensors = [replace(tensor, name=f"{_LANGUAGE}{tensor.name}") for tensor in tensors]
        tensors += _tower_tensors(vision, config, source, mlc_format)
    order = {name: position for position, name in enumerate(_listed_names(source))}
    return sorted(tensors, key=lambda tensor: min(order[rows.tensor.name] for rows in tensor.rows))


def _listed_names(source: Source) -> list[str]:
    """Return the names of the tensors in the order of the index, file by file."""
    if source.index.name != INDEX_NAME:
        return [tensor.name for tensor in source.tensors.values()]

    names: dict[str, list[str]] = {}
    for name, file in read_index(source.index)["weight_map"].items():
        names.setdefault(file, []).append(name)
    return [name for group in names.values() for name in group]


def _tower_tensors(
    vision: VisionConfig, config: ModelConfig, source: Source, mlc_format: MLCFormat
) -> Iterator[OutputTensor]:
    """Yield the tensors of a tower, with those of its unused layers, and of its projector."""
    for name, tensor in source.tensors.items():
        if name.startswith(_TOWER) and tensor.dtype in FLOAT_TYPES:
            columns = tensor.shape[-1] if len(tensor.shape) > 1 else 1
            rows = Rows(tensor, 0, math.prod(tensor.shape) // columns)
            own = name.replace(_TOWER, _MLC_TOWER, 1)
            yield OutputTensor(own, tensor.shape, (rows,), mlc_format.dtype)
    for parameter in vision_parameters(vision):
        (name, *_) = parameter.sources
        if name.startswith(_PROJECTOR):
            own = name if parameter.kind == "vector" else name.removesuffix(".weight")
            yield _tensor(parameter, own, [source.tensors[name]], config, mlc_format)


def _tensors(
    parameter: Parameter, config: ModelConfig, source: Source, mlc_format: MLCFormat
) -> Iterator[OutputTensor]:
    if mlc_format.source_method is not None and _is_layer(parameter):
        yield from kept_tensors(parameter, source, mlc_format, parameter.num_experts)
        return

    is_fused = parameter.fused_source in source.tensors
    names = (parameter.fused_source,) if is_fused else parameter.sources
    sources = [source.tensors[name] for name in names]
    if not parameter.mlc_parts:
        name = parameter.mlc_name or parameter.name
        yield _tensor(parameter, name, sources, config, mlc_format)
        return

    for part, tensor in zip(parameter.mlc_parts, sources, strict=True):
        yield _tensor(parameter, part, [tensor], config, mlc_format)


def _tensor(
    parameter: Parameter,
    name: str,
    sources: Sequence[SourceTensor],
    config: ModelConfig,
    mlc_format: MLCFormat,
) -> OutputTensor:
    columns = parameter.shape[-1] if parameter.kind == "matrix" else 1
    rows = tuple(Rows(t, 0, math.prod(t.shape) // columns) for t in sources)
    count = sum(part.count for part in rows)
    if parameter.row_order is not None:
        runs = source_runs(parameter.row_order, count)
        rows = tuple(_run(rows, first, length) for first, length in runs)
    if parameter.kind == "vector":
        is_float32 = name.endswith(_FLOAT32_BIASES.get(config.model_type, ()))
        dtype: ModelDtype = "float32" if is_float32 else mlc_format.dtype
        offset = parameter.weight_offset
        return OutputTensor(name, (count,), rows, dtype, _plain(mlc_format), weight_offset=offset)

    storage = _storage(parameter, mlc_format)
    is_embedding = parameter.name.startswith(_EMBEDDINGS)
    experts = parameter.num_experts
    if experts:
        _check_experts(mlc_format)
    return OutputTensor(
        f"{name}.weight" if storage in ("plain", "raw") else name,
        (experts, count // experts, columns) if experts else (count, columns),
        rows,
        mlc_format.dtype,
        storage,
        is_transposed=storage == "groups" and mlc_format.is_transposed and not is_embedding,
    )


def _storage(parameter: Parameter, mlc_format: MLCFormat) -> Storage:
    if parameter.keep_float32 or (mlc_format.keeps_vocabulary and _is_vocabulary(parameter)):
        return _plain(mlc_format)

    if mlc_format.fp8 is not None:
        return "fp8"

    if mlc_format.is_progressive:
        return "progressive"

    return "groups" if mlc_format.bits else "plain"


def _plain(mlc_format: MLCFormat) -> Storage:
    """Return the storage of what is not quantized."""
    return "raw" if mlc_format.is_progressive else "plain"


def _is_vocabulary(parameter: Parameter) -> bool:
    return parameter.name.startswith((*_HEADS, *_EMBEDDINGS))


def _is_layer(parameter: Parameter) -> bool:
    """Return whether AWQ and FP8 checkpoints have quantized the matrix."""
    is_float = parameter.keep_float32 or _is_vocabulary(parameter)
    return parameter.kind == "matrix" and not is_float


def _check_experts(mlc_format: MLCFormat) -> None:
    if mlc_format.is_transposed:
        raise BadRequestError(
            f"quantization {mlc_format.name} does not support mixtures of experts; choose one that "
            "ends in _1",
            param="quantization",
        )


def _run(parts: Sequence[Rows], first: int, count: int) -> Rows:
    """Return rows of the concatenated parts; they are within one of them."""
    for part in parts:
        if first < part.count:
            return Rows(part.tensor, first, count)

        first -= part.count
    raise AssertionError(f"row {first} is after the last part")
