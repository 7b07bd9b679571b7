"""A matrix as a model directory stores it: floats, or integers with scales and zero points."""

from __future__ import annotations

__all__ = (
    "CHANNEL_FORMAT",
    "FLOAT_TYPES",
    "MAX_CHANNEL_INPUTS",
    "PROGRESSIVE_FORMAT",
    "IntegerTensor",
    "ScaleTensor",
    "StoredMatrix",
    "StoredType",
    "group_format",
    "native_group",
    "progressive_row_bytes",
)

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from aiomlc.weights.formats.source import SourceTensor

#: `integers` describes its packing; the others are stored row by row. The names in capitals are
#: GGUF's, whose blocks contain the scales, as do the rows of `i4progressive`.
StoredType = Literal[
    "f32",
    "f16",
    "bf16",
    "f8e4m3",
    "f8e5m2",
    "integers",
    "Q4_0",
    "Q4_1",
    "Q5_0",
    "Q5_1",
    "Q8_0",
    "Q2_K",
    "Q3_K",
    "Q4_K",
    "Q5_K",
    "Q6_K",
    "IQ4_NL",
    "MXFP4",
    "i4progressive",
]
FLOAT_TYPES: Final = ("f32", "f16", "bf16")
#: The packed format of int8 with a scale per row, and with activations that have one per token.
CHANNEL_FORMAT: Final = "i8channel"
#: The packed format of `w4a8`, which only its own stored rows and floats can have.
PROGRESSIVE_FORMAT: Final = "i4progressive"
MAX_CHANNEL_INPUTS: Final = 1 << 16  #: More inputs might overflow its sums, which have 32 bits.
_CHANNEL_GROUPS: Final = (256, 128, 64, 32)


@dataclass(frozen=True, slots=True)
class IntegerTensor:
    """Unsigned integers `[outputs, inputs]` of a few bits, packed along one axis into units."""

    tensor: SourceTensor
    bits: int
    unit_bytes: int = 4  #: 4 for 32-bit words, 1 for bytes.
    #: Integers in each unit, beginning with the lowest bits; 0 if words are filled without gaps.
    per_unit: int = 0
    padding: int = 1  #: Inputs are padded to a multiple of this.
    axis: Literal["inputs", "outputs"] = "inputs"  #: The axis that is packed.
    is_transposed: bool = False  #: Whether the tensor is `[inputs, outputs]`.
    is_awq_order: bool = False  #: Whether integers 0, 2, 4, 6, 1, 3, 5, 7 follow one another.
    is_signed: bool = False  #: Whether bytes are signed, so that -128 is stored for 0.

    def shape(self, outputs: int, inputs: int) -> tuple[int, int]:
        """Return the shape that the tensor must have."""
        inputs = -(-inputs // self.padding) * self.padding
        if self.axis == "inputs":
            inputs = self._units(inputs)
        else:
            outputs = self._units(outputs)
        return (inputs, outputs) if self.is_transposed else (outputs, inputs)

    def _units(self, count: int) -> int:
        if self.per_unit:
            return -(-count // self.per_unit)

        return -(-count * self.bits // (8 * self.unit_bytes))


@dataclass(frozen=True, slots=True)
class ScaleTensor:
    """Floats, each for a block of outputs and inputs."""

    tensor: SourceTensor
    block: tuple[int, int]  #: Outputs and inputs of a block.
    is_transposed: bool = False  #: Whether the tensor is by blocks of inputs, then of outputs.


@dataclass(frozen=True, slots=True)
class StoredMatrix:
    """A matrix `[rows, columns]`: rows are outputs, columns inputs. A vector has one column."""

    type: StoredType
    rows: int
    columns: int
    values: SourceTensor | IntegerTensor
    scales: ScaleTensor | None = None
    zero_points: IntegerTensor | None = None
    zero_point_offset: int = 0  #: Added to the stored zero points.
    groups: SourceTensor | None = None  #: The group of each input, if its inputs are reordered.
    #: The packed format that has the same values; None if the matrix consists of floats.
    format: str | None = None
    by_inputs: bool = False  #: Whether the tensor of floats is `[columns, rows]`.

    @property
    def tensor(self) -> SourceTensor:
        """The tensor with the values."""
        return self.values.tensor if isinstance(self.values, IntegerTensor) else self.values

    def tensors(self) -> Iterator[SourceTensor]:
        """Yield every tensor of the matrix."""
        yield self.tensor
        for part in (self.scales, self.zero_points):
            if part is not None:
                yield part.tensor
        if self.groups is not None:
            yield self.groups


def native_group(columns: int, group: int) -> int:
    """Return the group size of the packed format for groups of `group` inputs.

    A scale for a whole row is repeated for each of the largest groups that divide it.
    """
    if group < columns:
        return group

    return next((size for size in _CHANNEL_GROUPS if columns % size == 0), _CHANNEL_GROUPS[-1])


def progressive_row_bytes(columns: int) -> int:
    """Return the bytes of a stored row: its scale, and for 32 inputs a scale, an offset and codes.

    The layout is that of `native/src/kernels/linear/format/pack.h`.
    """
    return 4 + 18 * -(-columns // 32)


def group_format(bits: int, group: int, scale_type: str, zero_point: int | None) -> str:
    """Return the name of the packed format; a zero point of None means one for each group."""
    zero = "zp" if zero_point is None else f"z{zero_point}"
    return f"u{bits}g{group}{scale_type}{zero}"
