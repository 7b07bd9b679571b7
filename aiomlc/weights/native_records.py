"""A plan in the form that the native conversion takes; see `native/src/ffi/weights.cc`."""

from __future__ import annotations

__all__ = ("native_records",)

from collections.abc import Mapping
from itertools import chain
from pathlib import Path

from aiomlc.weights.formats.source import SourceTensor
from aiomlc.weights.plan import ConversionPlan, ParameterPlan
from aiomlc.weights.storage.stored_matrix import IntegerTensor, ScaleTensor, StoredMatrix

Record = dict[str, object]
FileIds = Mapping[Path, int]


def native_records(plan: ConversionPlan) -> list[Record]:
    """Return a record for each parameter that is converted."""
    files = {path: index for index, path in enumerate(plan.files)}
    return [_parameter(planned, files) for planned in plan.converted]


def _parameter(planned: ParameterPlan, files: FileIds) -> Record:
    parameter, order = planned.parameter, planned.row_order
    rows, columns = (*parameter.shard_shape, 1)[:2]
    if parameter.kind == "order":
        rows, columns = 1, rows
    record: dict[str, object] = {
        "kind": parameter.storage,
        "layout": parameter.shard_layout if parameter.storage == "matrix" else (),
        "rows": rows,
        "cols": columns,
        "added": planned.weight_offset,
        "row_order": (order.blocks, order.groups, *order.parts) if order else (),
        "destination": planned.offset,
        "bytes": planned.nbytes,
        "matrices": [_matrix(matrix, files) for matrix in planned.matrices],
    }
    if parameter.split is None:
        return record

    first_column, _ = parameter.columns
    return {
        **record,
        "row_runs": tuple(chain.from_iterable(parameter.row_runs)),
        "first_col": first_column,
        "source_cols": (*parameter.shape, 1)[1],
    }


def _matrix(matrix: StoredMatrix, files: FileIds) -> Record:
    record: Record = {
        "type": matrix.type,
        "rows": matrix.rows,
        "zero_point_offset": matrix.zero_point_offset,
    }
    if isinstance(matrix.values, IntegerTensor):
        record["integers"] = _integers(matrix.values, files)
    else:
        record["tensor"] = _tensor(matrix.values, files)
        record["by_inputs"] = matrix.by_inputs
    if matrix.scales is not None:
        record["scales"] = _scales(matrix.scales, files)
    if matrix.zero_points is not None:
        record["zero_points"] = _integers(matrix.zero_points, files)
    if matrix.groups is not None:
        record["groups"] = _tensor(matrix.groups, files)
    if matrix.format is not None:
        record["format"] = matrix.format
    return record


def _tensor(tensor: SourceTensor, files: FileIds) -> Record:
    return {"file": files[tensor.path], "offset": tensor.offset}


def _integers(integers: IntegerTensor, files: FileIds) -> Record:
    return {
        "tensor": _tensor(integers.tensor, files),
        "bits": integers.bits,
        "unit_bytes": integers.unit_bytes,
        "per_unit": integers.per_unit,
        "padding": integers.padding,
        "axis": integers.axis,
        "is_transposed": integers.is_transposed,
        "is_awq_order": integers.is_awq_order,
        "is_signed": integers.is_signed,
    }


def _scales(scales: ScaleTensor, files: FileIds) -> Record:
    return {
        "tensor": _tensor(scales.tensor, files),
        "type": scales.tensor.dtype,
        "block_outputs": scales.block[0],
        "block_inputs": scales.block[1],
        "is_transposed": scales.is_transposed,
    }
