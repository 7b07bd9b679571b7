"""The packed formats that keep the numbers of a source exactly."""

from __future__ import annotations

__all__ = ("SourceLayouts", "check_layout", "source_layouts")

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from aiomlc.models.parameters.packed_layout import Layout
from aiomlc.models.parameters.packed_parameter import PackedParameter
from aiomlc.models.parameters.parameter import Parameter
from aiomlc.weights.formats.source import Source
from aiomlc.weights.storage.find import find_matrices
from aiomlc.weights.storage.stored_matrix import PROGRESSIVE_FORMAT, StoredMatrix
from aiomlc.weights.storage.tensors import TensorLookup, tensor_error

_FLOAT_FORMATS: Final = (
    "f32",
    "f16",
    "bf16",
    "q4",
    "i4progressive",
    "u8g32f16z128",
    "i8rotated",
)  # What floats can be converted to.
_DENSE_FORMATS: Final = ("f32", "f16", "bf16")
#: The grouped format with the numbers of `q4`, which has kernels of its own.
_Q4_GROUPS: Final = "u4g32f16z7"
#: FP8 numbers times a float32 scale are rounded once, to the precision in which such models were
#: trained.
_FP8_FORMAT: Final = "bf16"


@dataclass(frozen=True, slots=True)
class SourceLayouts:
    """The layouts of a source's matrices, by the graph's names."""

    formats: dict[str, Layout]  #: Of every matrix.
    ordered: frozenset[str]  #: Matrices with columns in another order than their inputs.


def source_layouts(
    source: Source, parameters: Iterable[Parameter], float_format: str | None
) -> SourceLayouts:
    """Return the layout of every matrix.

    Args:
        source: The tensors.
        parameters: The model's parameters.
        float_format: The format of matrices that are stored as floats; None keeps the precision in
            which they are stored.

    Raises:
        ModelLoadError: If a tensor is missing or has the wrong shape or dtype.
    """
    tensors = TensorLookup(source)
    formats: dict[str, Layout] = {}
    ordered = set()
    for parameter in parameters:
        if parameter.kind == "matrix":
            packed = PackedParameter.from_parameter(parameter, ())
            matrices = find_matrices(source, tensors, packed)
            segments = ((_format(parameter, m, float_format), m.rows) for m in matrices)
            formats[parameter.name] = tuple(_merged(segments))
            if parameter.num_experts:
                _check_experts(parameter, matrices, float_format)
            if any(matrix.groups is not None for matrix in matrices):
                ordered.add(parameter.name)
    return SourceLayouts(formats, frozenset(ordered))


def _check_experts(
    parameter: Parameter, matrices: Sequence[StoredMatrix], float_format: str | None
) -> None:
    """Raise if experts differ in their formats, or may differ in the order of their inputs."""
    if any(matrix.groups is not None for matrix in matrices):
        problem = "groups of inputs that are not neighbors (desc_act) are not supported in experts"
        raise tensor_error(matrices[0].tensor, problem)

    if len(matrices) != len(parameter.sources):  # One tensor has all experts.
        return

    first = parameter.sources[0]
    part = first[first.rindex(".experts.0.") + len(".experts.0") :]
    parts = len(matrices) // sum(source.endswith(part) for source in parameter.sources)
    formats = [_format(parameter, matrix, float_format) for matrix in matrices]
    for index, matrix in enumerate(matrices):
        if formats[index] != (expected := formats[index % parts]):
            raise tensor_error(
                matrix.tensor,
                "the experts of a layer must have the same format: "
                f"expected {expected}, got {formats[index]}",
            )


def check_layout(parameter: PackedParameter, matrices: Sequence[StoredMatrix]) -> None:
    """Require that the formats of a parameter can hold the numbers of its sources.

    Raises:
        ModelLoadError: If a matrix has numbers of another format.
    """
    if parameter.kind != "matrix":
        return

    segments = list(_ranges(parameter.layout))
    begin = 0
    for matrix in matrices:
        for name, first, last in segments:
            if first < begin + matrix.rows and begin < last and not _holds(name, matrix):
                stored = matrix.format or matrix.type
                message = f"expected weights in the format {name}, got {stored}"
                raise tensor_error(matrix.tensor, message)

        begin += matrix.rows


def _ranges(layout: Layout) -> Iterator[tuple[str, int, int]]:
    """Yield the format, the first row and the row after the last one of each segment."""
    end = 0
    for name, rows in layout:
        yield name, end, end + rows
        end += rows


def _holds(name: str, matrix: StoredMatrix) -> bool:
    if matrix.format is None:
        return name in _FLOAT_FORMATS

    is_rotated = matrix.format == PROGRESSIVE_FORMAT  # Its numbers are not weights of the inputs.
    return name == _native_format(matrix.format) or (name in _DENSE_FORMATS and not is_rotated)


def _format(parameter: Parameter, matrix: StoredMatrix, float_format: str | None) -> str:
    if parameter.keep_float32:
        return "f32"

    if matrix.format is None:
        return float_format or (matrix.type if matrix.type in _DENSE_FORMATS else _FP8_FORMAT)

    return _native_format(matrix.format)


def _native_format(name: str) -> str:
    return "q4" if name == _Q4_GROUPS else name


def _merged(segments: Iterable[tuple[str, int]]) -> Iterator[tuple[str, int]]:
    """Join adjacent segments of the same format."""
    current, total = "", 0
    for name, rows in segments:
        if total and name != current:
            yield current, total
            total = 0
        current, total = name, total + rows
    yield current, total
