"""The plan of a conversion: what is read from where, and where each packed parameter is written.

Planning reads no tensor data.
"""

from __future__ import annotations

__all__ = (
    "ConversionPlan",
    "ParameterPlan",
    "Slice",
    "make_plan",
    "packed_file_bytes",
)

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal, cast

from aiomlc.errors import ModelLoadError
from aiomlc.models.parameters.packed_layout import GROUP_SIZE, MATRIX_ALIGNMENT, VECTOR_ALIGNMENT
from aiomlc.models.parameters.packed_parameter import PackedParameter
from aiomlc.models.parameters.parameter import source_runs
from aiomlc.weights.formats.source import Source, SourceTensor, load_error

_log = logging.getLogger("aiomlc")

FLOAT_BYTES: Final = MappingProxyType({"f32": 4, "f16": 2, "bf16": 2})
_Q4_WORDS = GROUP_SIZE // 8  # uint32 words of a group: eight 4-bit values in each.

SliceType = Literal["q4", "bf16", "f16", "f32"]


@dataclass(frozen=True, slots=True)
class Slice:
    """Consecutive rows in a source file."""

    file: int  #: Index in `ConversionPlan.files`.
    offset: int  #: In bytes.
    rows: int
    type: SliceType
    scale_file: int = 0  #: File of the scales; `q4` only.
    scale_offset: int = 0  #: Offset of the scales in bytes; `q4` only.


@dataclass(frozen=True, slots=True)
class ParameterPlan:
    """A parameter, its location in the packed file, and its sources."""

    parameter: PackedParameter
    offset: int  #: In bytes.
    nbytes: int
    slices: tuple[Slice, ...]
    weight_offset: float = 0.0  #: Added to every element during conversion.


@dataclass(frozen=True, slots=True)
class ConversionPlan:
    """The input of the native conversion."""

    files: tuple[Path, ...]
    params: tuple[ParameterPlan, ...]
    nbytes: int  #: Of the packed file.


def packed_file_bytes(parameters: Iterable[PackedParameter]) -> int:
    """Return the size in bytes of the packed file with `parameters` in this order."""
    end = 0
    for parameter in parameters:
        end = _align(end, parameter) + parameter.nbytes
    return end


def make_plan(parameters: Iterable[PackedParameter], source: Source) -> ConversionPlan:
    """Find the sources of every parameter and lay out the packed file.

    Raises:
        ModelLoadError: If a tensor is missing or has the wrong shape or dtype.
    """
    files = tuple(sorted({tensor.path for tensor in source.tensors.values()}))
    finder = _SourceFinder(source, {path: index for index, path in enumerate(files)})
    plans = []
    end = 0
    for parameter in parameters:
        offset = _align(end, parameter)
        weight_offset = 0.0 if source.is_mlc else parameter.weight_offset
        slices = finder.find(parameter)
        plans.append(ParameterPlan(parameter, offset, parameter.nbytes, slices, weight_offset))
        end = offset + parameter.nbytes

    unused = source.tensors.keys() - finder.used
    if unused:
        _log.debug("%s: %d unused tensors: %s", source.index, len(unused), sorted(unused))

    return ConversionPlan(files, tuple(plans), end)


def _align(end: int, parameter: PackedParameter) -> int:
    alignment = MATRIX_ALIGNMENT if parameter.kind == "matrix" else VECTOR_ALIGNMENT
    return -(-end // alignment) * alignment


class _SourceFinder:
    """Finds the source tensors of parameters, and records which tensors are used."""

    def __init__(self, source: Source, file_ids: Mapping[Path, int]) -> None:
        self._source = source
        self._file_ids = file_ids
        self.used: set[str] = set()

    def find(self, parameter: PackedParameter) -> tuple[Slice, ...]:
        if not self._source.is_mlc:
            is_fused = parameter.fused_source in self._source.tensors
            names = (parameter.fused_source,) if is_fused else parameter.sources
            return _reorder(parameter, self._find_floats(parameter, names))

        parts = parameter.mlc_parts or (parameter.name,)
        if parameter.kind == "vector":
            return self._find_floats(parameter, parts)

        if f"{parts[0]}.q_weight" in self._source.tensors:
            return self._find_q4(parameter, parts)

        return self._find_floats(parameter, [f"{part}.weight" for part in parts])

    def _find_floats(self, parameter: PackedParameter, names: Sequence[str]) -> tuple[Slice, ...]:
        shape = parameter.shape
        tensors = [_with_flat_rows(self._tensor(name), parameter) for name in names]
        for tensor in tensors:
            if tensor.dtype not in FLOAT_BYTES:
                raise _dtype_error(tensor, "f32, f16 or bf16")

            if len(tensor.shape) != len(shape) or tensor.shape[1:] != shape[1:]:
                raise _shape_error(tensor, shape)

        _check_row_sum(parameter, tensors)
        return tuple(
            Slice(
                self._file_ids[tensor.path],
                tensor.offset,
                tensor.shape[0],
                cast("SliceType", tensor.dtype),
            )
            for tensor in tensors
        )

    def _find_q4(self, parameter: PackedParameter, parts: Sequence[str]) -> tuple[Slice, ...]:
        slices = []
        remaining = parameter.shape[0]
        for part in parts[:-1]:
            weight = _with_flat_rows(self._tensor(f"{part}.q_weight"), parameter)
            rows = weight.shape[0] if weight.shape else 0
            slices.append(self._find_q4_part(parameter, part, rows))
            remaining -= rows
        return (*slices, self._find_q4_part(parameter, parts[-1], remaining))

    def _find_q4_part(self, parameter: PackedParameter, name: str, rows: int) -> Slice:
        weight = _with_flat_rows(self._tensor(f"{name}.q_weight"), parameter)
        scale = _with_flat_rows(self._tensor(f"{name}.q_scale"), parameter)
        groups = -(-parameter.shape[1] // GROUP_SIZE)
        if parameter.format != "q4":
            raise _tensor_error(weight, f"expected {parameter.format} weights, got 4-bit weights")

        for tensor, dtype, shape in (
            (weight, "u32", (rows, groups * _Q4_WORDS)),
            (scale, "f16", (rows, groups)),
        ):
            if tensor.dtype != dtype:
                raise _dtype_error(tensor, dtype)

            if tensor.shape != shape:
                raise _shape_error(tensor, shape)

        return Slice(
            self._file_ids[weight.path],
            weight.offset,
            rows,
            "q4",
            self._file_ids[scale.path],
            scale.offset,
        )

    def _tensor(self, name: str) -> SourceTensor:
        tensor = self._source.tensors.get(name)
        if tensor is None:
            raise load_error("tensor is missing", path=self._source.index, tensor=name)

        self.used.add(name)
        return tensor


def _check_row_sum(parameter: PackedParameter, tensors: Sequence[SourceTensor]) -> None:
    expected = parameter.shape[0]
    rows = sum(tensor.shape[0] for tensor in tensors)
    if rows == expected:
        return

    if len(tensors) == 1:
        raise _shape_error(tensors[0], parameter.shape)

    shapes = ", ".join(f"{tensor.name} {list(tensor.shape)}" for tensor in tensors)
    raise _tensor_error(
        tensors[0],
        f"wrong shape: expected {expected} rows of {parameter.name}, got {rows} from {shapes}",
    )


def _reorder(parameter: PackedParameter, slices: tuple[Slice, ...]) -> tuple[Slice, ...]:
    if parameter.row_order is None:
        return slices

    row_elements = math.prod(parameter.shape[1:])
    runs = source_runs(parameter.row_order, parameter.shape[0])
    return tuple(_subslice(slices, start, rows, row_elements) for start, rows in runs)


def _subslice(slices: Sequence[Slice], start: int, rows: int, row_elements: int) -> Slice:
    """Return `rows` rows from row `start` of the concatenated slices."""
    for source in slices:
        if start < source.rows:
            offset = start * row_elements * FLOAT_BYTES[source.type]
            return replace(source, offset=source.offset + offset, rows=rows)

        start -= source.rows
    raise AssertionError(f"row {start} is after the last slice")


def _with_flat_rows(tensor: SourceTensor, parameter: PackedParameter) -> SourceTensor:
    """Return the tensor with a single axis of rows, if the parameter's rows may span several."""
    if not parameter.fused_source or len(tensor.shape) <= len(parameter.shape):
        return tensor

    return replace(tensor, shape=(math.prod(tensor.shape[:-1]), tensor.shape[-1]))


def _tensor_error(tensor: SourceTensor, message: str) -> ModelLoadError:
    return load_error(message, path=tensor.path, tensor=tensor.name)


def _dtype_error(tensor: SourceTensor, expected: str) -> ModelLoadError:
    return _tensor_error(tensor, f"wrong dtype: expected {expected}, got {tensor.dtype}")


def _shape_error(tensor: SourceTensor, expected: tuple[int, ...]) -> ModelLoadError:
    shape = list(tensor.shape)
    return _tensor_error(tensor, f"wrong shape: expected {list(expected)}, got {shape}")
