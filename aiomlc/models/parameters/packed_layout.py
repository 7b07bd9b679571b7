"""Layout of the packed weights, as the native converter writes and the CPU kernels read them.

A matrix is stored in tiles of 16 rows (outputs). A dense tile holds, for each column (input), the
16 values of its rows. A q4 tile holds, for each group of 32 columns, 256 bytes of nibbles and 16
float16 scales. Rows and q4 columns are padded to whole tiles and groups. A vector is float32.
"""

from __future__ import annotations

__all__ = (
    "GROUP_SIZE",
    "GROUP_TILE_BYTES",
    "LAYOUT_VERSION",
    "MATRIX_ALIGNMENT",
    "TILE_ROWS",
    "VECTOR_ALIGNMENT",
    "Layout",
    "packed_bytes",
)

from typing import Final

from aiomlc.models.parameters.matrix_format import MatrixFormat

Layout = tuple[tuple[str, int], ...]
"""The segments of a matrix: the format of consecutive rows, and their number."""

LAYOUT_VERSION: Final = 2  # Increase it whenever the packed bytes of the same weights change.
TILE_ROWS: Final = 16
GROUP_SIZE: Final = 32  # Consecutive columns of a row that share a scale.
GROUP_TILE_BYTES: Final = TILE_ROWS * (GROUP_SIZE // 2 + 2)  # Two values per byte, and a scale.
MATRIX_ALIGNMENT: Final = 4096  # A memory page.
VECTOR_ALIGNMENT: Final = 64  # TVM requires it of every tensor.


def packed_bytes(format_name: str, rows: int, columns: int) -> int:
    """Return the size in bytes of a packed matrix `[rows, columns]`, padding included."""
    return MatrixFormat.parse(format_name).packed_bytes(rows, columns)
