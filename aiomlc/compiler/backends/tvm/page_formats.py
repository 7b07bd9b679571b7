"""The storage of keys and values in pages, as expressions of kernels."""

from __future__ import annotations

__all__ = ("PageFormat",)

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, final

from tvm import tirx

from aiomlc.compiler.kv_cache import KVCache

_LARGEST_INT8: Final = 127.0


@final
@dataclass(frozen=True, slots=True)
class PageFormat:
    """The storage of a row of a page: of one head at one position.

    A row of int8 is followed by the four bytes of its scale; bfloat16 is stored as uint16.
    """

    cache: KVCache

    @property
    def dtype(self) -> str:
        """The dtype of pages."""
        return self.cache.storage_dtype

    @property
    def has_scale(self) -> bool:
        """Whether rows have scales."""
        return self.cache.scale_bytes > 0

    def row_size(self, head_dim: int) -> int:
        """Return the stored elements of a row."""
        return self.cache.row_size(head_dim)

    def load(self, row: Callable[[Any], Any], index: Any, head_dim: int) -> Any:  # noqa: ANN401
        """Return element `index` of a row as float32; `row` returns a stored element."""
        match self.cache.dtype:
            case "bfloat16":
                bits = tirx.Cast("uint32", row(index))
                return tirx.reinterpret("float32", tirx.shift_left(bits, _uint32(16)))
            case "int8":
                return tirx.Cast("float32", row(index)) * _scale(row, head_dim)
            case _:
                return tirx.Cast("float32", row(index))

    def store(self, value: Any, scale: Any) -> Any:  # noqa: ANN401 - tvm is untyped.
        """Return the stored element of a value."""
        match self.cache.dtype:
            case "bfloat16":
                bits = tirx.reinterpret("uint32", tirx.Cast("float32", value))
                odd = tirx.bitwise_and(tirx.shift_right(bits, _uint32(16)), _uint32(1))
                rounded = bits + _uint32(0x7FFF) + odd
                return tirx.Cast("uint16", tirx.shift_right(rounded, _uint32(16)))
            case "int8":
                return tirx.Cast("int8", tirx.round(tirx.Cast("float32", value) / scale))
            case dtype:
                return tirx.Cast(dtype, value)

    def scale(self, largest: Any) -> Any:  # noqa: ANN401 - tvm is untyped.
        """Return the scale of a row, given its largest magnitude."""
        one = tirx.const(1.0, "float32")
        return tirx.Select(largest > 0.0, largest / tirx.const(_LARGEST_INT8, "float32"), one)

    def scale_byte(self, scale: Any, index: Any) -> Any:  # noqa: ANN401 - tvm is untyped.
        """Return byte `index` of a scale as an element of pages."""
        shift = tirx.Cast("uint32", index) * _uint32(8)
        byte = tirx.shift_right(tirx.reinterpret("uint32", scale), shift)
        return tirx.Cast(self.dtype, tirx.bitwise_and(byte, _uint32(255)))


def _uint32(value: int) -> Any:  # noqa: ANN401 - tvm is untyped.
    return tirx.const(value, "uint32")


def _scale(row: Callable[[Any], Any], head_dim: int) -> Any:  # noqa: ANN401 - tvm is untyped.
    bits = _uint32(0)
    for i in range(4):
        byte = tirx.Cast("uint32", tirx.bitwise_and(tirx.Cast("int32", row(head_dim + i)), 255))
        bits = tirx.bitwise_or(bits, tirx.shift_left(byte, _uint32(8 * i)))
    return tirx.reinterpret("float32", bits)
