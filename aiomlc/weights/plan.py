"""What to read from where, and where each packed parameter goes. Pure, without tensor data."""

from __future__ import annotations

__all__ = (
    "LAYOUT_VERSION",
    "ConversionPlan",
    "Param",
    "ParamPlan",
    "Slice",
    "make_plan",
    "packed_bytes",
    "packed_file_bytes",
    "parse_params",
)

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, cast

from aiomlc.errors import ModelLoadError
from aiomlc.models.parameters.parameter import RowOrder, source_runs
from aiomlc.weights.formats.source import Source, SourceTensor, load_error

logger: logging.Logger = logging.getLogger("aiomlc")

LAYOUT_VERSION: Final = 1  # Raise it whenever the packed bytes of the same weights change.
TILE_ROWS: Final = 16
GROUP_SIZE: Final = 32
GROUP_BYTES: Final = 288
MATRIX_ALIGNMENT: Final = 4096
VECTOR_ALIGNMENT: Final = 64  # TVM demands it of every tensor.
FLOAT_BYTES: Final = MappingProxyType({"f32": 4, "f16": 2, "bf16": 2})

Format = Literal["q4", "bf16", "f32"]
SliceType = Literal["q4", "bf16", "f16", "f32"]


@dataclass(frozen=True, slots=True)
class Param:
    """One packed parameter as the compiled library expects it."""

    name: str
    kind: Literal["matrix", "vector"]
    format: Format
    shape: tuple[int, ...]
    sources: tuple[str, ...]
    added: float = 0.0  #: To each element, unless the source is an MLC directory, which has it.
    order: RowOrder | None = None  #: Of rows, unless the source is an MLC directory.
    #: The tensor that some files have in place of all sources; its rows may be several axes.
    whole: str = ""
    mlc_parts: tuple[str, ...] = ()  #: What an MLC directory has in place of `name`, if anything.


@dataclass(frozen=True, slots=True)
class Slice:
    """Consecutive rows in a source file. `scale_*` tells where the scales of type q4 lie."""

    file: int
    offset: int
    rows: int
    type: SliceType
    scale_file: int = 0
    scale_offset: int = 0


@dataclass(frozen=True, slots=True)
class ParamPlan:
    """A parameter, its place in the packed file, and what it is made from."""

    param: Param
    offset: int
    nbytes: int
    slices: tuple[Slice, ...]
    added: float = 0.0


@dataclass(frozen=True, slots=True)
class ConversionPlan:
    """Everything that the native conversion needs."""

    files: tuple[Path, ...]
    params: tuple[ParamPlan, ...]
    nbytes: int


def parse_params(records: Sequence[Mapping[str, Any]]) -> tuple[Param, ...]:
    """Read the `params` of a compiled library's metadata, in their order."""
    return tuple(
        Param(
            name=record["name"],
            kind=record["kind"],
            format=record["format"],
            shape=tuple(record["shape"]),
            sources=tuple(record["sources"]),
            added=record.get("added", 0.0),
            order=_order(record.get("order")),
            whole=record.get("whole", ""),
            mlc_parts=tuple(record.get("mlc_parts", ())),
        )
        for record in records
    )


def _order(values: Sequence[int] | None) -> RowOrder | None:
    return None if values is None else cast("RowOrder", tuple(values))


def packed_bytes(param: Param) -> int:
    """Bytes of a parameter in the packed file."""
    if param.kind == "vector":
        return math.prod(param.shape) * 4

    rows, cols = param.shape
    tiles = -(-rows // TILE_ROWS)
    if param.format == "q4":
        return tiles * -(-cols // GROUP_SIZE) * GROUP_BYTES

    return tiles * TILE_ROWS * cols * (2 if param.format == "bf16" else 4)


def packed_file_bytes(params: Iterable[Param]) -> int:
    """Bytes of the packed file of these parameters, in this order."""
    end = 0
    for param in params:
        end = _aligned(end, param) + packed_bytes(param)
    return end


def make_plan(params: Iterable[Param], source: Source) -> ConversionPlan:
    """Find the sources of every parameter and lay out the packed file.

    Raises:
        ModelLoadError: a tensor is missing or has the wrong shape or type.
    """
    files = tuple(sorted({tensor.path for tensor in source.tensors.values()}))
    finder = _Finder(source, {path: index for index, path in enumerate(files)})
    plans = []
    end = 0
    for param in params:
        offset = _aligned(end, param)
        nbytes = packed_bytes(param)
        added = 0.0 if source.is_mlc else param.added
        plans.append(ParamPlan(param, offset, nbytes, finder.find(param), added))
        end = offset + nbytes

    unused = source.tensors.keys() - finder.used
    if unused:
        logger.debug("%s: %d tensors are not used: %s", source.index, len(unused), sorted(unused))

    return ConversionPlan(files, tuple(plans), end)


def _aligned(end: int, param: Param) -> int:
    alignment = MATRIX_ALIGNMENT if param.kind == "matrix" else VECTOR_ALIGNMENT
    return -(-end // alignment) * alignment


class _Finder:
    """Looks up the source tensors of parameters and remembers which were used."""

    def __init__(self, source: Source, file_ids: Mapping[Path, int]) -> None:
        self._source = source
        self._file_ids = file_ids
        self.used: set[str] = set()

    def find(self, param: Param) -> tuple[Slice, ...]:
        if not self._source.is_mlc:
            names = (param.whole,) if param.whole in self._source.tensors else param.sources
            return _ordered(param, self._find_floats(param, names))

        parts = param.mlc_parts or (param.name,)
        if param.kind == "vector":
            return self._find_floats(param, parts)

        if f"{parts[0]}.q_weight" in self._source.tensors:
            return self._find_q4(param, parts)

        return self._find_floats(param, [f"{part}.weight" for part in parts])

    def _find_floats(self, param: Param, names: Sequence[str]) -> tuple[Slice, ...]:
        tensors = [_as_rows(self._tensor(name), param) for name in names]
        for tensor in tensors:
            if tensor.dtype not in FLOAT_BYTES:
                raise _wrong(tensor, f"type is {tensor.dtype}, expected f32, f16 or bf16")

            if len(tensor.shape) != len(param.shape) or tensor.shape[1:] != param.shape[1:]:
                raise _wrong_shape(tensor, param.shape)

        rows = sum(tensor.shape[0] for tensor in tensors)
        if rows != param.shape[0]:
            if len(tensors) == 1:
                raise _wrong_shape(tensors[0], param.shape)

            counts = ", ".join(f"{tensor.name} {list(tensor.shape)}" for tensor in tensors)
            raise _wrong(
                tensors[0],
                f"wrong shape: {counts} make {rows} rows of {param.name}, "
                f"expected {param.shape[0]}",
            )

        return tuple(
            Slice(
                self._file_ids[tensor.path],
                tensor.offset,
                tensor.shape[0],
                cast("SliceType", tensor.dtype),
            )
            for tensor in tensors
        )

    def _find_q4(self, param: Param, parts: Sequence[str]) -> tuple[Slice, ...]:
        slices = []
        left = param.shape[0]
        for part in parts[:-1]:
            weight = _as_rows(self._tensor(f"{part}.q_weight"), param)
            rows = weight.shape[0] if weight.shape else 0
            slices.append(self._find_q4_part(param, part, rows))
            left -= rows
        return (*slices, self._find_q4_part(param, parts[-1], left))

    def _find_q4_part(self, param: Param, name: str, rows: int) -> Slice:
        weight = _as_rows(self._tensor(f"{name}.q_weight"), param)
        scale = _as_rows(self._tensor(f"{name}.q_scale"), param)
        groups = -(-param.shape[1] // GROUP_SIZE)
        if param.format != "q4":
            raise _wrong(weight, f"tensor is quantised to 4 bits, expected {param.format}")

        for tensor, dtype, shape in (
            (weight, "u32", (rows, groups * 4)),
            (scale, "f16", (rows, groups)),
        ):
            if tensor.dtype != dtype:
                raise _wrong(tensor, f"type is {tensor.dtype}, expected {dtype}")

            if tensor.shape != shape:
                raise _wrong_shape(tensor, shape)

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


def _ordered(param: Param, slices: tuple[Slice, ...]) -> tuple[Slice, ...]:
    if param.order is None:
        return slices

    row_elements = math.prod(param.shape[1:])
    runs = source_runs(param.order, param.shape[0])
    return tuple(_rows_of(slices, start, rows, row_elements) for start, rows in runs)


def _rows_of(slices: Sequence[Slice], start: int, rows: int, row_elements: int) -> Slice:
    for piece in slices:
        if start < piece.rows:
            offset = start * row_elements * FLOAT_BYTES[piece.type]
            return replace(piece, offset=piece.offset + offset, rows=rows)

        start -= piece.rows
    raise AssertionError(f"{rows} rows from {start} on are in no source")


def _as_rows(tensor: SourceTensor, param: Param) -> SourceTensor:
    """A tensor of a parameter whose rows may be several axes, with one axis for them."""
    if not param.whole or len(tensor.shape) <= len(param.shape):
        return tensor

    return replace(tensor, shape=(math.prod(tensor.shape[:-1]), tensor.shape[-1]))


def _wrong(tensor: SourceTensor, message: str) -> ModelLoadError:
    return load_error(message, path=tensor.path, tensor=tensor.name)


def _wrong_shape(tensor: SourceTensor, expected: tuple[int, ...]) -> ModelLoadError:
    return _wrong(tensor, f"wrong shape: {list(tensor.shape)}, expected {list(expected)}")
