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
    "MatrixFormat",
    "packed_bytes",
)

from typing import Final, Literal

MatrixFormat = Literal["q4", "bf16", "f32"]

LAYOUT_VERSION: Final = 2  # Increase it whenever the packed bytes of the same weights change.
TILE_ROWS: Final = 16
GROUP_SIZE: Final = 32  # Consecutive columns of a row that share a scale.
_SCALE_BYTES = 2  # float16
GROUP_TILE_BYTES: Final = TILE_ROWS * (GROUP_SIZE // 2 + _SCALE_BYTES)  # 288: two values per byte.
MATRIX_ALIGNMENT: Final = 4096  # A memory page.
VECTOR_ALIGNMENT: Final = 64  # TVM requires it of every tensor.


def packed_bytes(matrix_format: MatrixFormat, rows: int, columns: int) -> int:
    """Return the size in bytes of a packed matrix `[rows, columns]`, padding included."""
    tiles = -(-rows // TILE_ROWS)
    if matrix_format == "q4":
        return tiles * -(-columns // GROUP_SIZE) * GROUP_TILE_BYTES

    return tiles * TILE_ROWS * columns * (2 if matrix_format == "bf16" else 4)
