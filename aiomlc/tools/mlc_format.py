"""The quantizations that the converter writes, under MLC LLM's names."""

from __future__ import annotations

__all__ = ("MLC_FORMATS", "MLCFormat", "ModelDtype", "format_named")

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

from aiomlc.errors import BadRequestError

ModelDtype = Literal["float16", "bfloat16", "float32"]

_GROUP_SIZES: Final = MappingProxyType({3: 40, 4: 32})  # By bits.
_REFUSED: Final = MappingProxyType(
    {
        "q4f16_ft": "its packing is that of one generation of GPUs",
        "q4f16_autoawq": "it needs activations; convert a checkpoint that AWQ quantized",
    }
)


@dataclass(frozen=True, slots=True)
class MLCFormat:
    """How the tensors of an MLC directory are stored."""

    name: str
    dtype: ModelDtype  #: Of scales, and of all that is not quantized.
    bits: int = 0  #: Of a quantized weight; 0 if no matrix is quantized.
    is_transposed: bool = False  #: Whether linear layers are `[inputs, outputs]`.
    keeps_vocabulary: bool = False  #: Whether embedding and output head are not quantized.

    @property
    def group_size(self) -> int:
        """Consecutive inputs that share a scale."""
        return _GROUP_SIZES[self.bits]

    @property
    def dtype_bytes(self) -> int:
        """Bytes of an element of `dtype` in memory."""
        return 4 if self.dtype == "float32" else 2

    def groups(self, columns: int) -> int:
        """Return the groups of a row."""
        return -(-columns // self.group_size)

    def words(self, columns: int) -> int:
        """Return the uint32 words of a row."""
        return self.groups(columns) * (self.group_size // (32 // self.bits))


MLC_FORMATS: Mapping[str, MLCFormat] = MappingProxyType(
    {
        mlc_format.name: mlc_format
        for mlc_format in (
            MLCFormat("q0f16", "float16"),
            MLCFormat("q0bf16", "bfloat16"),
            MLCFormat("q0f32", "float32"),
            MLCFormat("q3f16_0", "float16", 3, is_transposed=True),
            MLCFormat("q3f16_1", "float16", 3),
            MLCFormat("q4f16_0", "float16", 4, is_transposed=True),
            MLCFormat("q4f16_1", "float16", 4),
            MLCFormat("q4f16_2", "float16", 4, keeps_vocabulary=True),
            MLCFormat("q4f32_1", "float32", 4),
            MLCFormat("q4bf16_0", "bfloat16", 4, is_transposed=True),
            MLCFormat("q4bf16_1", "bfloat16", 4),
        )
    }
)


def format_named(name: str) -> MLCFormat:
    """Return the format of a quantization.

    Raises:
        BadRequestError: If it is unknown or cannot be written.
    """
    if name in MLC_FORMATS:
        return MLC_FORMATS[name]

    reason = f": {_REFUSED[name]}" if name in _REFUSED else ""
    raise BadRequestError(
        f"quantization must be one of {', '.join(MLC_FORMATS)}, got {name!r}{reason}",
        param="quantization",
    )
