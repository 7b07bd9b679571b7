"""The storage of keys and values, as a back end defines it."""

from __future__ import annotations

__all__ = ("KVCache",)

from dataclasses import dataclass
from typing import Final

from aiomlc.compiler.quantization import FloatType

_ELEMENT_BYTES: Final = {"float32": 4, "float16": 2, "bfloat16": 2, "int8": 1}


@dataclass(frozen=True, slots=True)
class KVCache:
    """The dtypes in which keys and values are computed and stored."""

    compute_dtype: FloatType  #: Also of queries and attention outputs.
    dtype: str  #: Of a stored element: `compute_dtype`, "bfloat16" or "int8".
    scale_bytes: int = 0  #: Bytes of the scale that is stored with each head and position.

    @property
    def is_converted(self) -> bool:
        """Whether keys and values are stored in another dtype than they are computed in."""
        return self.dtype != self.compute_dtype

    @property
    def storage_dtype(self) -> str:
        """The dtype by which TVM's cache knows a stored element."""
        return "uint16" if self.dtype == "bfloat16" else self.dtype

    @property
    def compute_bytes(self) -> int:
        """Bytes of a computed element."""
        return 4 if self.compute_dtype == "float32" else 2

    def row_size(self, head_dim: int) -> int:
        """Return the elements of one head at one position, including the bytes of a scale."""
        return head_dim + self.scale_bytes

    def row_bytes(self, head_dim: int) -> int:
        """Return the bytes of one head at one position."""
        return self.row_size(head_dim) * _ELEMENT_BYTES[self.dtype]
