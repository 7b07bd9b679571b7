"""The quantizations: the format of the weights and the default dtype of the KV cache."""

from __future__ import annotations

__all__ = (
    "QUANTIZATIONS",
    "FloatType",
    "Quantization",
    "fuses_feed_forward",
    "quantization_named",
)

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from aiomlc.errors import ModelLoadError
from aiomlc.models.parameters.packed_layout import TILE_ROWS, MatrixFormat

FloatType = Literal["float16", "float32"]


@dataclass(frozen=True, slots=True)
class Quantization:
    """The formats of a compiled library. Norms and biases are always float32."""

    name: str
    matrix_format: MatrixFormat
    kv_dtype: FloatType  #: Default dtype of the KV cache.


QUANTIZATIONS: Mapping[str, Quantization] = MappingProxyType(
    {
        "q0f32": Quantization("q0f32", "f32", "float32"),
        "q0bf16": Quantization("q0bf16", "bf16", "float16"),
        "q4f16_1": Quantization("q4f16_1", "q4", "float16"),
    }
)


def quantization_named(name: str) -> Quantization:
    """Return the quantization `name`.

    Raises:
        ModelLoadError: If the quantization is unknown.
    """
    if name not in QUANTIZATIONS:
        raise ModelLoadError(
            f"quantization must be one of {', '.join(QUANTIZATIONS)}, got {name!r}",
            field="quantization",
        )

    return QUANTIZATIONS[name]


def fuses_feed_forward(matrix_format: MatrixFormat, inner: int) -> bool:
    """Return whether one kernel computes a complete gated MLP of intermediate size `inner`, without
    float32 activations of that size in memory."""
    # Gate and up must each consist of whole tiles, because a task computes tiles of both.
    return matrix_format == "q4" and inner % TILE_ROWS == 0
