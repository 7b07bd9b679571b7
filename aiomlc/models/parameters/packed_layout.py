"""Layout of the packed weights, as the native converter writes them.

A back end reads one of two families. In `rows`, a matrix has its rows one after the other: of
float32, or of 4 bits, 16 bytes of codes and a float16 scale for each group of 32 columns.

In `tiles`, which the native CPU kernels read, a matrix has tiles of 16 rows (outputs). A tile of
float32 or float16 holds, for each column (input), the 16 values of its rows. A bf16 tile holds, for
each pair of columns, the 16 pairs of its rows. A q4 tile holds, for each group of 32 columns, 256
bytes of nibbles and 16 float16 scales. Rows, and the columns of bf16 and q4, are padded to whole
tiles and groups. A vector is float32.
"""

from __future__ import annotations

__all__ = (
    "GROUP_SIZE",
    "GROUP_TILE_BYTES",
    "LAYOUT_VERSION",
    "MATRIX_ALIGNMENT",
    "ROW_GROUP_BYTES",
    "TILE_ROWS",
    "VECTOR_ALIGNMENT",
    "Layout",
    "LayoutFamily",
    "packed_bytes",
    "row_bytes",
)

from typing import Final, Literal

from aiomlc.models.parameters.matrix_format import MatrixFormat

Layout = tuple[tuple[str, int], ...]
"""The segments of a matrix: the format of consecutive rows, and their number."""

LayoutFamily = Literal["tiles", "rows"]

LAYOUT_VERSION: Final = 4  # Increase it whenever the packed bytes of the same weights change.
TILE_ROWS: Final = 16
GROUP_SIZE: Final = 32  # Consecutive columns of a row that share a scale.
GROUP_TILE_BYTES: Final = TILE_ROWS * (GROUP_SIZE // 2 + 2)  # Two values per byte, and a scale.
ROW_GROUP_BYTES: Final = GROUP_SIZE // 2 + 2  # The same for one row.
MATRIX_ALIGNMENT: Final = 4096  # A memory page.
VECTOR_ALIGNMENT: Final = 64  # TVM requires it of every tensor.


def packed_bytes(format_name: str, rows: int, columns: int) -> int:
    """Return the size in bytes of a packed matrix `[rows, columns]`, padding included."""
    return MatrixFormat.parse(format_name).packed_bytes(rows, columns)


def row_bytes(format_name: str, columns: int) -> int:
    """Return the size in bytes of a matrix's row in the family `rows`.

    Raises:
        ValueError: If the family does not have the format.
    """
    match format_name:
        case "f32":
            return 4 * columns
        case "q4":
            return -(-columns // GROUP_SIZE) * ROW_GROUP_BYTES
        case _:
            raise ValueError(f"rows have no format {format_name}")
