"""The storage formats of packed matrices: their names, their codes and their sizes.

`native/src/kernels/linear/format/matrix_format.h` has the same for the kernels; a test compares
them.
"""

from __future__ import annotations

__all__ = ("MatrixFormat",)

import re
from dataclasses import dataclass
from functools import cache
from typing import Literal

_TILE_ROWS = 16
_CHUNK = 32  # Inputs whose codes are stored together.
_SUPER_GROUP = 256  # Inputs with one pair of float16 in the k8 scale types.
_BYTE_BITS = 8
_BYTE_ZERO = 128  # The only constant zero point of 8 bits.

_FAMILIES = ("f32", "bf16", "q4", "grouped", "f16", "i8channel", "i4progressive", "i8rotated")
_CHANNEL_FAMILIES = ("i8channel", "i4progressive", "i8rotated")
_CODES = ("u", "e2m1", "iq4nl")
_SCALES = ("f16", "bf16", "f32", "k8", "k8s")
_ZEROS = ("z", "zp", "m")
_BITS = (2, 3, 4, 5, 6, 8)
_GROUPS = (8, 16, 32, 64, 128, 256)
_MIN_GROUP_WITH_MINIMA = 16  # Also with zero points of 8 bits, whose products are alike.
_Q4_GROUP_BYTES = _TILE_ROWS * (_CHUNK // 2 + 2)
_CHANNEL_GROUP = 64  # Inputs of `_CHANNEL_FAMILIES` that are padded together.
_CHANNEL_ROW_BYTES = 8  # Per output of them: its scale (4) and the sum of its weights (4).
_PROGRESSIVE_GROUP_BYTES = _CHANNEL_GROUP // 2 + 4  # Two scales and offsets of 32 inputs.

_NAME = re.compile(
    r"(?:u(?P<bits>[1-9]\d*)|(?P<table>e2m1|iq4nl))"
    r"g(?P<group>[1-9]\d*)(?P<scale>f16|bf16|f32|k8s|k8)"
    r"(?:(?P<zero>zp|m)|z(?P<constant>0|[1-9]\d*))?",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class MatrixFormat:
    """The storage format of a matrix.

    The name of a grouped format is `u{bits}g{group}{scale}{zero}`: a weight is `scale * (code -
    zero)` or `scale * code - minimum`, where the numbers belong to a row and a group of inputs. The
    zero is `z{constant}`, `zp` (a zero point per group) or `m` (a minimum per group). The scales
    `k8` and `k8s` are a float16 per 256 inputs, times an unsigned or signed byte per group. `e2m1`
    and `iq4nl` in place of `u{bits}` look the code up in a table, and have no zero.

    `i8channel` is int8 with a scale per row, for activations with one scale per token.
    `i4progressive` has the same integers in 4 bits, as `group_scale * code + group_offset` with an
    integer scale and offset per row and 32 inputs; its inputs are rotated. `i8rotated` is
    `i8channel` with rotated inputs.
    """

    family: Literal[
        "f32", "f16", "bf16", "q4", "grouped", "i8channel", "i4progressive", "i8rotated"
    ]
    bits: int = 0
    group: int = 0  #: Consecutive inputs with the same scale.
    scale: Literal["f16", "bf16", "f32", "k8", "k8s"] = "f16"
    codes: Literal["u", "e2m1", "iq4nl"] = "u"
    zero: Literal["z", "zp", "m"] = "z"
    constant: int = 0  #: The zero point of `z`.

    @staticmethod
    def parse(name: str) -> MatrixFormat:
        """Return the format of a name.

        Raises:
            ValueError: If there is no such format.
        """
        return _parse(name)

    @property
    def name(self) -> str:
        """The name, which `parse` reads."""
        if self.family != "grouped":
            return self.family

        codes = f"u{self.bits}" if self.codes == "u" else self.codes
        zero = f"z{self.constant}" if self.zero == "z" else self.zero
        return f"{codes}g{self.group}{self.scale}{zero if self.codes == 'u' else ''}"

    @property
    def code(self) -> int:
        """The integer by which compiled libraries name the format."""
        if self.family != "grouped":
            return _FAMILIES.index(self.family)

        return (
            _FAMILIES.index(self.family)
            | self.bits << 4
            | self.group << 8
            | _SCALES.index(self.scale) << 20
            | _CODES.index(self.codes) << 24
            | _ZEROS.index(self.zero) << 26
            | self.constant << 28
        )

    @property
    def has_row_scales(self) -> bool:
        """Whether activations have one scale per token, and weights one per row."""
        return self.family in _CHANNEL_FAMILIES

    @property
    def has_integer_activations(self) -> bool:
        """Whether products round the activations to 8 bits."""
        return self.family in ("q4", "grouped") or self.has_row_scales

    def packed_bytes(self, rows: int, columns: int) -> int:
        """Return the size in bytes of a packed matrix `[rows, columns]`, padding included."""
        tiles = -(-rows // _TILE_ROWS)
        match self.family:
            case "f32":
                return tiles * _TILE_ROWS * columns * 4
            case "f16":
                return tiles * _TILE_ROWS * columns * 2
            case "bf16":
                return tiles * _TILE_ROWS * -(-columns // _CHUNK) * _CHUNK * 2
            case "q4":
                return tiles * -(-columns // _CHUNK) * _Q4_GROUP_BYTES
            case "i8channel" | "i4progressive" | "i8rotated":
                is_byte = self.family != "i4progressive"
                group_bytes = _CHANNEL_GROUP if is_byte else _PROGRESSIVE_GROUP_BYTES
                groups = -(-columns // _CHANNEL_GROUP)
                return tiles * _TILE_ROWS * (_CHANNEL_ROW_BYTES + groups * group_bytes)
            case "grouped":
                return tiles * self._grouped_tile_bytes(columns)

    def _grouped_tile_bytes(self, columns: int) -> int:
        is_super = self.scale in ("k8", "k8s")
        inputs = _SUPER_GROUP if is_super else max(_CHUNK, self.group)
        scale = 1 if is_super else 4 if self.scale == "f32" else 2
        zero = {"z": 0, "zp": 1, "m": scale}[self.zero]
        supers = 0 if not is_super else 4 if self.zero == "m" else 2
        numbers = supers + inputs // self.group * (scale + zero)
        block = _TILE_ROWS * (numbers + inputs * self.bits // 8)
        return -(-columns // inputs) * block


@cache
def _parse(name: str) -> MatrixFormat:
    if name in _FAMILIES and name != "grouped":
        return MatrixFormat(name)  # type: ignore[arg-type]

    match = _NAME.fullmatch(name)
    parsed = None if match is None else _grouped(match)
    if parsed is None:
        raise ValueError(
            f"unknown matrix format {name!r}; expected f32, f16, bf16, q4, i8channel, "
            "i8rotated, i4progressive or a name like u4g32f16z8"
        )

    return parsed


def _grouped(match: re.Match[str]) -> MatrixFormat | None:
    fields = match.groupdict()
    codes = fields["table"] or "u"
    bits = 4 if fields["table"] else int(fields["bits"])
    group = int(fields["group"])
    has_zero = fields["zero"] is not None or fields["constant"] is not None
    if bits not in _BITS or group not in _GROUPS or has_zero != (codes == "u"):
        return None

    zero = fields["zero"] or "z"
    constant = int(fields["constant"] or 0)
    has_minima = zero == "m" or (zero == "zp" and bits == _BYTE_BITS)
    if has_minima and group < _MIN_GROUP_WITH_MINIMA:
        return None

    allowed = {_BYTE_ZERO} if bits == _BYTE_BITS else range(1 << bits)
    if fields["constant"] is not None and constant not in allowed:
        return None

    return MatrixFormat("grouped", bits, group, fields["scale"], codes, zero, constant)  # type: ignore[arg-type]
