"""Which weights a quantisation stores how, and what the KV cache holds."""

from __future__ import annotations

__all__ = (
    "QUANTIZATIONS",
    "FloatType",
    "MatrixFormat",
    "Quantization",
    "fuses_feed_forward",
    "packed_bytes",
    "quantization_named",
)

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from aiomlc.errors import ModelLoadError

MatrixFormat = Literal["q4", "bf16", "f32"]
FloatType = Literal["float16", "float32"]

_TILE = 16  # Output rows of one tile of a packed matrix.
_GROUP = 32  # Inputs that share a scale.
_GROUP_BYTES = _TILE * (_GROUP // 2 + 2)  # Nibbles, then one float16 scale a row.


@dataclass(frozen=True, slots=True)
class Quantization:
    """Norms and biases are always float32; every matrix has one format."""

    name: str
    matrix_format: MatrixFormat
    kv_dtype: FloatType


QUANTIZATIONS: Mapping[str, Quantization] = MappingProxyType(
    {
        "q0f32": Quantization("q0f32", "f32", "float32"),
        "q0bf16": Quantization("q0bf16", "bf16", "float16"),
        "q4f16_1": Quantization("q4f16_1", "q4", "float16"),
    }
)


def quantization_named(name: str) -> Quantization:
    """Look a quantisation up.

    Raises:
        ModelLoadError: there is none of that name.
    """
    if name not in QUANTIZATIONS:
        raise ModelLoadError(
            f"quantization is {name!r}; supported: {', '.join(QUANTIZATIONS)}",
            field="quantization",
        )

    return QUANTIZATIONS[name]


def packed_bytes(matrix_format: MatrixFormat, rows: int, columns: int) -> int:
    """Bytes of a matrix `[rows, columns]` as the CPU kernels want it packed."""
    tiles = -(-rows // _TILE)
    if matrix_format == "q4":
        return tiles * -(-columns // _GROUP) * _GROUP_BYTES

    return tiles * _TILE * columns * (2 if matrix_format == "bf16" else 4)


def fuses_feed_forward(matrix_format: MatrixFormat, inner: int) -> bool:
    """Whether one kernel computes a gated layer of this inner size, and keeps no floats of it."""
    # Gate and up must be whole tiles each, for a task to take some of both.
    return matrix_format == "q4" and inner % _TILE == 0
