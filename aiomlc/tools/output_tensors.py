"""The tensors of an MLC directory, and the rows of the checkpoint that each is made of."""

from __future__ import annotations

__all__ = ("OutputTensor", "Rows", "output_tensors")

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from aiomlc.errors import BadRequestError
from aiomlc.models import DecoderConfig, ModelConfig, Parameter
from aiomlc.models.parameters.parameter import source_runs
from aiomlc.tools.mlc_format import MLCFormat, ModelDtype
from aiomlc.weights.formats.safetensors import INDEX_NAME
from aiomlc.weights.formats.source import Source, SourceTensor, read_index

# Biases that MLC LLM keeps in float32 in every quantization, by model type.
_FLOAT32_BIASES = {"gpt_neox": (".mlp.dense_h_to_4h.bias", ".mlp.dense_4h_to_h.bias")}
_HEADS = ("lm_head",)
_EMBEDDINGS = ("model.embed_tokens", "embeddings.")


@dataclass(frozen=True, slots=True)
class Rows:
    """Consecutive rows of a tensor of the checkpoint."""

    tensor: SourceTensor
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class OutputTensor:
    """A tensor of the model, which is stored as it is or as two: values and scales."""

    name: str  #: Of a matrix without `.weight`.
    shape: tuple[int, ...]  #: `[rows, columns]`; of experts `[experts, rows, columns]`.
    rows: tuple[Rows, ...]
    dtype: ModelDtype  #: Of its elements, or of its scales.
    is_matrix: bool
    is_quantized: bool = False
    is_transposed: bool = False
    weight_offset: float = 0.0  #: Added to every element.

    @property
    def columns(self) -> int:
        """Elements of a row."""
        return self.shape[-1] if self.is_matrix else 1

    @property
    def num_rows(self) -> int:
        """Rows, with those of all experts."""
        return math.prod(self.shape) // self.columns


def output_tensors(
    parameters: Sequence[Parameter], config: ModelConfig, source: Source, mlc_format: MLCFormat
) -> list[OutputTensor]:
    """Return the tensors to write, in the order in which MLC LLM's converter writes them.

    That is the order in which the checkpoint lists the first tensor of each.

    Raises:
        BadRequestError: If the format does not support the model.
    """
    tensors = [
        tensor
        for parameter in parameters
        for tensor in _tensors(parameter, config, source, mlc_format)
    ]
    order = {name: position for position, name in enumerate(_listed_names(source))}
    return sorted(tensors, key=lambda tensor: min(order[rows.tensor.name] for rows in tensor.rows))


def _listed_names(source: Source) -> list[str]:
    """Return the names of the tensors in the order of the index, file by file."""
    if source.index.name != INDEX_NAME:
        return list(source.tensors)

    names: dict[str, list[str]] = {}
    for name, file in read_index(source.index)["weight_map"].items():
        names.setdefault(file, []).append(name)
    return [name for group in names.values() for name in group]


def _tensors(
    parameter: Parameter, config: ModelConfig, source: Source, mlc_format: MLCFormat
) -> Iterator[OutputTensor]:
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
        return OutputTensor(name, (count,), rows, dtype, is_matrix=False, weight_offset=offset)

    is_vocabulary = parameter.name.startswith((*_HEADS, *_EMBEDDINGS))
    is_quantized = (
        mlc_format.bits > 0
        and not parameter.keep_float32
        and not (mlc_format.keeps_vocabulary and is_vocabulary)
    )
    shape: tuple[int, ...] = (count, columns)
    if _is_experts(parameter):
        assert isinstance(config, DecoderConfig)
        assert config.experts is not None
        _check_experts(mlc_format)
        shape = (config.experts.count, count // config.experts.count, columns)
    return OutputTensor(
        name,
        shape,
        rows,
        mlc_format.dtype,
        is_matrix=True,
        is_quantized=is_quantized,
        is_transposed=mlc_format.is_transposed and not parameter.name.startswith(_EMBEDDINGS),
    )


def _is_experts(parameter: Parameter) -> bool:
    return bool(parameter.fused_source) and not parameter.keep_float32


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
