"""How keys and values are kept, beside a quantisation of the weights."""

from __future__ import annotations

__all__ = ("KVCache", "kv_cache_of")

from dataclasses import dataclass

from aiomlc.compiler.quantization import FloatType, Quantization
from aiomlc.config import KVCacheType

_SCALE_BYTES = 4


@dataclass(frozen=True, slots=True)
class KVCache:
    """What keys and values are: where they are computed, and where they are kept."""

    computed: FloatType  #: Also of queries and of what attention gives.
    is_8_bit: bool  #: Kept as int8, with a float32 scale for each head of a position.

    @property
    def dtype(self) -> str:
        """The type of an element that is kept."""
        return "int8" if self.is_8_bit else self.computed

    @property
    def computed_bytes(self) -> int:
        """Bytes of an element that is computed."""
        return 4 if self.computed == "float32" else 2

    def row_size(self, head_dim: int) -> int:
        """Elements of `dtype` of one head of one position, a scale counted in them."""
        return head_dim + _SCALE_BYTES if self.is_8_bit else head_dim

    def row_bytes(self, head_dim: int) -> int:
        """Bytes of one head of one position."""
        return self.row_size(head_dim) * (1 if self.is_8_bit else self.computed_bytes)


def kv_cache_of(quantization: Quantization, dtype: KVCacheType) -> KVCache:
    """The cache of a model in a quantisation; "auto" is the quantisation's own."""
    match dtype:
        case "float16" | "float32":
            return KVCache(dtype, is_8_bit=False)
        case "auto" | "int8":
            return KVCache(quantization.kv_dtype, is_8_bit=dtype == "int8")
