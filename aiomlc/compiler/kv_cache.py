"""The storage of keys and values, as a back end defines it."""

from __future__ import annotations

__all__ = ("KVCache",)

from dataclasses import dataclass

from aiomlc.compiler.quantization import FloatType


@dataclass(frozen=True, slots=True)
class KVCache:
    """The dtypes in which keys and values are computed and stored."""

    compute_dtype: FloatType  #: Also of queries and attention outputs.
    dtype: str  #: Of a stored element: `compute_dtype` or "int8".
    scale_bytes: int = 0  #: Bytes of the scale that is stored with each head and position.

    @property
    def is_8_bit(self) -> bool:
        """Whether the elements are int8."""
        return self.dtype == "int8"

    @property
    def compute_bytes(self) -> int:
        """Bytes of a computed element."""
        return 4 if self.compute_dtype == "float32" else 2

    def row_size(self, head_dim: int) -> int:
        """Return the elements of one head at one position, including the bytes of a scale."""
        return head_dim + self.scale_bytes

    def row_bytes(self, head_dim: int) -> int:
        """Return the bytes of one head at one position."""
        return self.row_size(head_dim) * (1 if self.is_8_bit else self.compute_bytes)
