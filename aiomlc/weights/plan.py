"""The plan of a conversion: what is read from where, and where each packed parameter is written.

Planning reads no tensor data.
"""

from __future__ import annotations

__all__ = (
    "ConversionPlan",
    "ParameterPlan",
    "make_plan",
    "packed_file_bytes",
)

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from aiomlc.models.parameters.packed_layout import MATRIX_ALIGNMENT, VECTOR_ALIGNMENT
from aiomlc.models.parameters.packed_parameter import PackedParameter
from aiomlc.models.parameters.parameter import RowOrder
from aiomlc.weights.formats.source import Source
from aiomlc.weights.storage.find import find_matrices, row_order
from aiomlc.weights.storage.layouts import check_layout
from aiomlc.weights.storage.stored_matrix import StoredMatrix
from aiomlc.weights.storage.tensors import TensorLookup

_log = logging.getLogger("aiomlc")


@dataclass(frozen=True, slots=True)
class ParameterPlan:
    """A parameter, its location in the packed file, and its sources."""

    parameter: PackedParameter
    offset: int  #: In bytes.
    nbytes: int
    matrices: tuple[StoredMatrix, ...]  #: Stacked on axis 0, in the order of the source's rows.
    weight_offset: float = 0.0  #: Added to every element during conversion.
    row_order: RowOrder | None = None  #: The order of the source's rows, if it differs.


@dataclass(frozen=True, slots=True)
class ConversionPlan:
    """The input of the native conversion."""

    files: tuple[Path, ...]
    params: tuple[ParameterPlan, ...]
    nbytes: int  #: Of the packed file.

    @property
    def converted(self) -> tuple[ParameterPlan, ...]:
        """The parameters that are written; the others are zero, as a new file is."""
        return tuple(plan for plan in self.params if not plan.parameter.is_zero)


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
    tensors = TensorLookup(source)
    plans = []
    end = 0
    for parameter in parameters:
        matrices = find_matrices(source, tensors, parameter)
        check_layout(parameter, matrices)
        plan = ParameterPlan(
            parameter,
            _align(end, parameter),
            parameter.nbytes,
            matrices,
            weight_offset=0.0 if source.is_mlc else parameter.weight_offset,
            row_order=row_order(source, parameter),
        )
        plans.append(plan)
        end = plan.offset + plan.nbytes

    unused = source.tensors.keys() - tensors.used
    if unused:
        _log.debug("%s: %d unused tensors: %s", source.index, len(unused), sorted(unused))

    files = tuple(sorted({tensor.path for tensor in source.tensors.values()}))
    return ConversionPlan(files, tuple(plans), end)


def _align(end: int, parameter: PackedParameter) -> int:
    alignment = MATRIX_ALIGNMENT if parameter.kind == "matrix" else VECTOR_ALIGNMENT
    return -(-end // alignment) * alignment
