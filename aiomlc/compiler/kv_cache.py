"""The storage format of the KV cache, for a quantization of the weights."""

from __future__ import annotations

__all__ = ("KVCache", "kv_cache_of")

from dataclasses import dataclass

from aiomlc.compiler.quantization import FloatType, Quantization
from aiomlc.config import KVCacheType

_SCALE_BYTES = 4


@dataclass(frozen=True, slots=True)
class KVCache:
    """The dtypes in which keys and values are computed and stored."""

    compute_dtype: FloatType  #: Also of queries and attention outputs.
    is_8_bit: bool  #: Whether storage is int8, with a float32 scale per head and position.

    @property
    def dtype(self) -> str:
        """The dtype of a stored element."""
        return "int8" if self.is_8_bit else self.compute_dtype

    @property
    def compute_bytes(self) -> int:
        """Bytes of a computed element."""
        return 4 if self.compute_dtype == "float32" else 2

    def row_size(self, head_dim: int) -> int:
        """Return the elements of one head at one position, including the bytes of an int8 scale."""
        return head_dim + _SCALE_BYTES if self.is_8_bit else head_dim

    def row_bytes(self, head_dim: int) -> int:
        """Return the bytes of one head at one position."""
        return self.row_size(head_dim) * (1 if self.is_8_bit else self.compute_bytes)


def kv_cache_of(quantization: Quantization, dtype: KVCacheType) -> KVCache:
    """Return the KV cache format for `dtype`; "auto" is the quantization's default."""
    match dtype:
        case "float16" | "float32":
            return KVCache(dtype, is_8_bit=False)
        case "auto" | "int8":
            return KVCache(quantization.kv_dtype, is_8_bit=dtype == "int8")
