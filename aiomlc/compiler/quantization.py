"""The quantizations: the format of the weights and the default dtype of the KV cache."""

from __future__ import annotations

__all__ = (
    "QUANTIZATIONS",
    "FloatType",
    "Quantization",
    "quantization_named",
    "quantization_of",
)

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from aiomlc.errors import ModelLoadError
from aiomlc.models import Parameter
from aiomlc.models.parameters.packed_layout import Layout

FloatType = Literal["float16", "float32"]
KVType = Literal["float16", "bfloat16", "float32"]


@dataclass(frozen=True, slots=True)
class Quantization:
    """The formats of a compiled library. Norms and biases are always float32."""

    name: str
    matrix_format: str  #: Of the matrices without an entry in `layouts`.
    kv_dtype: KVType  #: Default dtype of the KV cache.
    #: The formats of matrices by the graph's names, as the weight files determine them.
    layouts: Mapping[str, Layout] = field(default_factory=dict)
    #: The matrices whose columns have another order than their inputs.
    ordered: frozenset[str] = frozenset()

    @property
    def compute_dtype(self) -> FloatType:
        """The dtype in which queries, keys and values are computed by default."""
        return "float32" if self.kv_dtype == "float32" else "float16"

    def layout_of(self, parameter: Parameter) -> Layout:
        """Return the formats of a parameter; empty unless it is a matrix."""
        if parameter.kind != "matrix":
            return ()

        matrix_format = "f32" if parameter.keep_float32 else self.matrix_format
        return self.layouts.get(parameter.name, ((matrix_format, parameter.shape[0]),))


QUANTIZATIONS: Mapping[str, Quantization] = MappingProxyType(
    {
        "q0f32": Quantization("q0f32", "f32", "float32"),
        "q0f16": Quantization("q0f16", "f16", "float16"),
        "q0bf16": Quantization("q0bf16", "bf16", "bfloat16"),
        "q4f16_1": Quantization("q4f16_1", "q4", "float16"),
        "q8_0": Quantization("q8_0", "u8g32f16z128", "float16"),
        "w4a8": Quantization("w4a8", "i4progressive", "bfloat16"),
        "w8a8": Quantization("w8a8", "i8rotated", "bfloat16"),
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


def quantization_of(
    name: str, layouts: Mapping[str, Layout], ordered: Iterable[str]
) -> Quantization:
    """Return the quantization of weights that are already quantized, or of `name` without layouts.

    Args:
        layouts: The formats of all matrices; empty for one of `QUANTIZATIONS`.
        ordered: The matrices whose columns have another order than their inputs.

    Raises:
        ModelLoadError: If there are no layouts and the quantization is unknown.
    """
    if not layouts:
        return quantization_named(name)

    # Weights that round activations per token were calibrated for other programs' bf16 attention.
    formats = {part for layout in layouts.values() for part, _ in layout}
    kv_dtype: KVType = "bfloat16" if "i8channel" in formats else "float16"
    if name == "q4f32_1":
        kv_dtype = "float32"
    return Quantization(name, "f32", kv_dtype, layouts, frozenset(ordered))
