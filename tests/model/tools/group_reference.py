"""MLC LLM's group quantization in NumPy, and the formats that it has."""

from __future__ import annotations

__all__ = ("FORMATS", "GroupFormat", "quantize_groups", "unpack")

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.model.weight_files import from_bf16, to_bf16

Array = NDArray[Any]


@dataclass(frozen=True)
class GroupFormat:
    """Bits of a value, values of a group, and the dtype of the scales."""

    bits: int
    group: int
    dtype: str

    @property
    def zero(self) -> int:
        """The value of weight 0."""
        return int(2 ** (self.bits - 1) - 1)

    def round(self, values: Array) -> Array:
        """Round to the dtype; the result is float32."""
        if self.dtype == "bfloat16":
            return from_bf16(to_bf16(values))

        return values.astype(self.dtype).astype(np.float32)


FORMATS = {
    "q3f16_0": GroupFormat(3, 40, "float16"),
    "q3f16_1": GroupFormat(3, 40, "float16"),
    "q4f16_0": GroupFormat(4, 32, "float16"),
    "q4f16_1": GroupFormat(4, 32, "float16"),
    "q4f16_2": GroupFormat(4, 32, "float16"),
    "q4f32_1": GroupFormat(4, 32, "float32"),
    "q4bf16_0": GroupFormat(4, 32, "bfloat16"),
    "q4bf16_1": GroupFormat(4, 32, "bfloat16"),
}


def quantize_groups(weights: Array, form: GroupFormat) -> tuple[Array, Array]:
    """Return words `uint32[rows, *]` and scales `float32[rows, groups]`.

    NumPy's float16 rounds each operation. With bfloat16, only weights and scales are rounded.
    """
    rows, columns = weights.shape
    groups = -(-columns // form.group)
    padded = np.zeros((rows, groups * form.group), np.float32)
    padded[:, :columns] = form.round(weights)
    step: Any = np.float16 if form.dtype == "float16" else np.float32
    grouped = padded.reshape(rows, groups, form.group).astype(step)
    scales = form.round((np.abs(grouped).max(axis=2) / step(form.zero)).astype(np.float32))
    with np.errstate(divide="ignore", invalid="ignore"):  # 0 / 0 is stored as 0.
        values = np.rint(grouped / scales[:, :, None].astype(step) + step(form.zero))
    values = np.fmin(np.fmax(values, 0), 2 * form.zero).astype(np.uint32).reshape(rows, -1)
    values[:, columns:] = 0
    per_word = 32 // form.bits
    shifts = np.arange(per_word, dtype=np.uint32) * form.bits
    words = (values.reshape(rows, -1, per_word) << shifts).sum(axis=2, dtype=np.uint32)
    return words, scales


def unpack(words: Array, scales: Array, columns: int, form: GroupFormat) -> Array:
    """Return the weights `float32[rows, columns]`."""
    per_word = 32 // form.bits
    shifts = np.arange(per_word, dtype=np.uint32) * form.bits
    values = (words[..., None] >> shifts) & np.uint32(2**form.bits - 1)
    levels = values.reshape(len(words), -1).astype(np.float32) - np.float32(form.zero)
    return (levels * scales.astype(np.float32).repeat(form.group, axis=1))[:, :columns]
