"""The storage of keys and values, as a back end defines it."""

from __future__ import annotations

__all__ = ("KVCache",)

from dataclasses import dataclass
from typing import Final

from aiomlc.compiler.quantization import FloatType

_ELEMENT_BITS: Final = {"float32": 32, "float16": 16, "bfloat16": 16, "int8": 8, "int4": 4}
#: The dtypes by which TVM's cache knows elements that it has no dtype for; a byte has two of int4.
_STORAGE_DTYPES: Final = {"bfloat16": "uint16", "int4": "uint8"}


@dataclass(frozen=True, slots=True)
class KVCache:
    """The dtypes in which keys and values are computed and stored."""

    compute_dtype: FloatType  #: Also of queries and attention outputs.
    dtype: str  #: Of a stored element: `compute_dtype`, "bfloat16", "int8" or "int4".
    scale_bytes: int = 0  #: Bytes of the scale that is stored with each head and position.

    @property
    def is_converted(self) -> bool:
        """Whether keys and values are stored in another dtype than they are computed in."""
        return self.dtype != self.compute_dtype

    @property
    def storage_dtype(self) -> str:
        """The dtype by which TVM's cache knows a stored element, or two of int4."""
        return _STORAGE_DTYPES.get(self.dtype, self.dtype)

    @property
    def compute_bytes(self) -> int:
        """Bytes of a computed element."""
        return 4 if self.compute_dtype == "float32" else 2

    def row_size(self, head_dim: int) -> int:
        """Return the numbers of `storage_dtype` of one head at one position, with its scale."""
        return self.row_bytes(head_dim) * 8 // max(8, _ELEMENT_BITS[self.dtype])

    def row_bytes(self, head_dim: int) -> int:
        """Return the bytes of one head at one position."""
        return head_dim * _ELEMENT_BITS[self.dtype] // 8 + self.scale_bytes
