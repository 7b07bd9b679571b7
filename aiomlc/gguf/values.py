"""The values of GGUF's metadata: numbers, booleans, strings, and arrays of these or of arrays."""

from __future__ import annotations

__all__ = ("ByteReader", "EndOfBytesError", "GGUFValue", "RawValue", "decode_value")

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, final

if TYPE_CHECKING:
    from numpy.typing import NDArray

GGUFValue = bool | int | float | str | Sequence["GGUFValue"]

_MAX_DEPTH: Final = 4  # Of arrays in arrays.
_BOOL: Final = 7
_STRING: Final = 8
_ARRAY: Final = 9
_FLOAT32: Final = 6
_MIN_STRING_BYTES: Final = 8  # Its length.
_MIN_ARRAY_BYTES: Final = 12  # Its type and length.

#: The little-endian NumPy type of each scalar type.
_DTYPES: Final[Mapping[int, str]] = MappingProxyType(
    {
        0: "<u1",
        1: "<i1",
        2: "<u2",
        3: "<i2",
        4: "<u4",
        5: "<i4",
        _FLOAT32: "<f4",
        _BOOL: "|u1",
        10: "<u8",
        11: "<i8",
        12: "<f8",
    }
)
_LENGTH: Final = struct.Struct("<Q")
_FORMATS: Final = MappingProxyType({"I": struct.Struct("<I"), "Q": _LENGTH})


class EndOfBytesError(Exception):
    """A value ends after the bytes that were read."""


@dataclass(frozen=True, slots=True)
class RawValue:
    """An encoded value, and where it is in its file."""

    kind: int  #: Its type.
    offset: int  #: In bytes.
    nbytes: int
    data: bytes | None  #: None for a long value, which stays in the file.


@final
class ByteReader:
    """Reads a header from its first byte to its last.

    Args:
        data: The first bytes of a file.

    Raises:
        EndOfBytesError: Of every method, if it would read beyond them.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.position: int = 0

    def integer(self, form: str) -> int:
        """Return an unsigned integer of 4 bytes, "I", or 8 bytes, "Q"."""
        layout = _FORMATS[form]
        try:
            (value,) = layout.unpack_from(self._data, self.position)
        except struct.error:
            raise EndOfBytesError from None

        self.position += layout.size
        return int(value)

    def take(self, count: int) -> bytes:
        """Return `count` bytes."""
        start = self.position
        self._advance(count)
        return self._data[start : self.position]

    def slice(self, start: int, end: int) -> bytes:
        """Return bytes that were read before."""
        return self._data[start:end]

    def skip_value(self, kind: int, depth: int = 0) -> None:
        """Skip a value.

        Raises:
            ValueError: If its type is unknown, or arrays are nested too deeply.
        """
        if kind in _DTYPES:
            self._advance(_item_bytes(kind))
        elif kind == _STRING:
            self._advance(self.integer("Q"))
        elif kind == _ARRAY:
            self._skip_array(depth + 1)
        else:
            raise ValueError(f"has the type {kind}, which GGUF does not have")

    def _skip_array(self, depth: int) -> None:
        if depth > _MAX_DEPTH:
            raise ValueError(f"nests arrays more than {_MAX_DEPTH} deep")

        kind, count = self.integer("I"), self.integer("Q")
        if kind in _DTYPES:
            self._advance(count * _item_bytes(kind))
        elif kind == _STRING:
            self._skip_strings(count)
        else:
            self._require(count * _MIN_ARRAY_BYTES)
            for _ in range(count):
                self.skip_value(kind, depth)

    def _skip_strings(self, count: int) -> None:
        self._require(count * _MIN_STRING_BYTES)
        data, position, read_length = self._data, self.position, _LENGTH.unpack_from
        try:
            for _ in range(count):  # Of vocabularies: this loop is all there is to each token.
                position += read_length(data, position)[0] + 8
        except (struct.error, OverflowError):
            raise EndOfBytesError from None

        self._advance(position - self.position)

    def _advance(self, count: int) -> None:
        self._require(count)
        self.position += count

    def _require(self, count: int) -> None:
        if count > len(self._data) - self.position:
            raise EndOfBytesError


def decode_value(kind: int, data: bytes) -> GGUFValue:
    """Return a value that `ByteReader.skip_value` has accepted.

    A single float of 32 bits becomes the shortest decimal number that rounds to it: 1e-05, as in
    the `config.json` that it was converted from, and not 9.99999974737875e-06.

    Raises:
        ValueError: If a string is not UTF-8, or a boolean is neither 0 nor 1.
    """
    value, _ = _decode(kind, data, 0)
    return value


def _decode(kind: int, data: bytes, start: int) -> tuple[GGUFValue, int]:
    """Return the value at `start`, and where it ends."""
    if kind == _STRING:
        begin = start + 8
        end = begin + _LENGTH.unpack_from(data, start)[0]
        return _text(data[begin:end]), end

    if kind == _ARRAY:
        inner = struct.unpack_from("<I", data, start)[0]
        return _decode_array(inner, _LENGTH.unpack_from(data, start + 4)[0], data, start + 12)

    array = _numbers(kind, 1, data, start)
    value = float(str(array[0])) if kind == _FLOAT32 else _scalars(kind, array)[0]
    return value, start + array.nbytes


def _decode_array(kind: int, count: int, data: bytes, start: int) -> tuple[GGUFValue, int]:
    if kind in _DTYPES:
        array = _numbers(kind, count, data, start)
        return _scalars(kind, array), start + array.nbytes

    if kind == _STRING:
        return _decode_strings(count, data, start)

    values: list[GGUFValue] = []
    for _ in range(count):
        value, start = _decode(kind, data, start)
        values.append(value)
    return values, start


def _decode_strings(count: int, data: bytes, start: int) -> tuple[list[str], int]:
    texts: list[str] = []
    read_length = _LENGTH.unpack_from
    try:
        for _ in range(count):
            begin = start + 8
            start = begin + read_length(data, start)[0]
            texts.append(data[begin:start].decode())
    except UnicodeDecodeError as error:
        raise ValueError(f"must be UTF-8, but entry {len(texts)} is not: {error}") from None

    return texts, start


def _item_bytes(kind: int) -> int:
    return int(_DTYPES[kind][-1])


def _numbers(kind: int, count: int, data: bytes, start: int) -> NDArray[Any]:
    import numpy as np  # Takes 0.1 s, so it is only imported when a file is read.

    return np.frombuffer(data, _DTYPES[kind], count, start)


def _scalars(kind: int, array: NDArray[Any]) -> Sequence[GGUFValue]:
    if kind != _BOOL:
        values: list[GGUFValue] = array.tolist()
        return values

    if len(array) and array.max() > 1:
        raise ValueError(f"must be false (0) or true (1), got {array.max()}")

    return [bool(value) for value in array]


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"must be UTF-8: {error}") from None
