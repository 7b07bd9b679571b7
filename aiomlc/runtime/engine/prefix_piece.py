"""The pieces in which the keys and values of a prefix move from one engine to another.

A piece is self-contained: a preamble, a JSON header, the ids of all tokens up to the end of the
piece, the rows of its own tokens, and a SHA-256 digest of everything before it. Integers are
little-endian.
"""

from __future__ import annotations

__all__ = ("KVFormat", "PrefixPiece", "new_piece", "pack_tokens", "parse_piece")

import array
import hashlib
import struct
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple

import orjson

from aiomlc.errors import PrefixTransferError
from aiomlc.validation.json_values import short_repr

_MAGIC: Final = b"AIOMLCKV"
_VERSION: Final = 1
_PREAMBLE: Final = struct.Struct("<8sII")  # Magic, version, bytes of the header.
_MAX_HEADER_BYTES: Final = 1 << 14
_MAX_TOKENS: Final = 1 << 31
_TOKEN_BYTES: Final = 4
_DIGEST_BYTES: Final = 32
_SCALE_BYTES: Final = 4
#: Of a stored element, or of two of int4.
_ELEMENT_BYTES: Final = {"float32": 4, "float16": 2, "bfloat16": 2, "int8": 1, "int4": 1}
#: The unsigned integers of numbers, and the bits of their exponents.
_EXPONENTS: Final = {
    "float32": ("<u4", 0x7F800000),
    "float16": ("<u2", 0x7C00),
    "bfloat16": ("<u2", 0x7F80),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class KVFormat:
    """The format of keys and values; engines with equal formats can exchange them.

    With equal formats, on processors of the same kind, the rows are those that the engine would
    compute itself, to the bit.
    """

    kv_dtype: str  #: The dtype of a stored element, such as "float16".
    num_layers: int
    num_key_value_heads: int
    row_size: int  #: Of one head at one position: elements (int4: pairs) and bytes of a scale.
    quantization: str
    weights: str  #: The key of the packed weights, a digest of their sources.
    library: str  #: The key of the compiled library, a digest of the model's configuration.

    @property
    def token_bytes(self) -> int:
        """Bytes of the keys and values of one token, in all layers."""
        row_bytes = self.row_size * _ELEMENT_BYTES[self.kv_dtype]
        return 2 * self.num_layers * self.num_key_value_heads * row_bytes


class PrefixPiece(NamedTuple):
    """A parsed piece: the rows of the tokens from `start` to the end."""

    token_ids: bytes  #: All tokens of the prefix up to the end of the piece, as int32.
    start: int
    rows: memoryview  #: [2, layers, tokens, heads, row_size]: keys, then values.

    @property
    def num_tokens(self) -> int:
        """The tokens of the prefix up to the end of the piece."""
        return len(self.token_ids) // _TOKEN_BYTES


class _NewPiece(NamedTuple):
    """A piece without its rows."""

    rows: memoryview  #: To be filled.
    buffer: bytearray

    def finish(self) -> bytes:
        """Return the piece, with its digest."""
        with memoryview(self.buffer) as view:
            view[-_DIGEST_BYTES:] = hashlib.sha256(view[:-_DIGEST_BYTES]).digest()
        return bytes(self.buffer)


def new_piece(kv_format: KVFormat, token_ids: Sequence[int], start: int) -> _NewPiece:
    """Return a piece for the tokens from `start` to the end, whose rows are still to be written."""
    header = orjson.dumps({**asdict(kv_format), "start": start, "num_tokens": len(token_ids)})
    tokens = pack_tokens(token_ids)
    head = _PREAMBLE.pack(_MAGIC, _VERSION, len(header)) + header + tokens
    num_rows_bytes = (len(token_ids) - start) * kv_format.token_bytes
    buffer = bytearray(len(head) + num_rows_bytes + _DIGEST_BYTES)
    buffer[: len(head)] = head
    return _NewPiece(memoryview(buffer)[len(head) : len(head) + num_rows_bytes], buffer)


def pack_tokens(token_ids: Sequence[int]) -> bytes:
    """Return token ids as int32; all processors that the core supports are little-endian."""
    return array.array("i", token_ids).tobytes()


def parse_piece(kv_format: KVFormat, piece: bytes | bytearray | memoryview) -> PrefixPiece:
    """Check a piece, and return its contents without copying the rows.

    Raises:
        PrefixTransferError: If the piece is damaged, or does not fit this engine; `field` names
            what differs.
    """
    view = memoryview(piece)
    view = view.cast("B") if view.c_contiguous else memoryview(view.tobytes())
    end = len(view) - _DIGEST_BYTES
    if end < _PREAMBLE.size:
        raise PrefixTransferError(
            f"a piece of a prefix must have at least {_PREAMBLE.size + _DIGEST_BYTES} bytes, got "
            f"{len(view)}",
            field="size",
        )

    magic, version, header_bytes = _PREAMBLE.unpack_from(view)
    if magic != _MAGIC:
        raise PrefixTransferError(
            "these bytes are not a piece of a prefix: they must start with "
            f"{_MAGIC!r}, got {bytes(magic)!r}",
            field="magic",
        )

    _require_equal("version", _VERSION, version)
    if hashlib.sha256(view[:end]).digest() != bytes(view[end:]):
        raise PrefixTransferError(
            "the piece is damaged or cut off: its digest does not match; send it again",
            field="digest",
        )

    header_end = _PREAMBLE.size + header_bytes
    if header_bytes > _MAX_HEADER_BYTES or header_end > end:
        raise PrefixTransferError(
            f"the header must have at most {_MAX_HEADER_BYTES} bytes, got {header_bytes}",
            field="header",
        )

    header = _parse_header(view[_PREAMBLE.size : header_end])
    for name, expected in asdict(kv_format).items():
        _require_equal(name, expected, header.get(name))

    num_tokens = _integer(header, "num_tokens", 1, _MAX_TOKENS)
    start = _integer(header, "start", 0, num_tokens - 1)
    tokens_end = header_end + num_tokens * _TOKEN_BYTES
    size = tokens_end + (num_tokens - start) * kv_format.token_bytes
    if size != end:
        raise PrefixTransferError(
            f"tokens {start} to {num_tokens} take {size + _DIGEST_BYTES} bytes, got {len(view)}",
            field="size",
        )

    rows = view[tokens_end:end]
    if not _is_finite(kv_format, rows):
        raise PrefixTransferError(
            "the keys and values of the piece must be finite numbers, got infinities or NaN",
            field="rows",
        )

    return PrefixPiece(bytes(view[header_end:tokens_end]), start, rows)


def _is_finite(kv_format: KVFormat, rows: memoryview) -> bool:
    """Return whether the rows have no number that would make all logits after it NaN."""
    import numpy as np  # Imported late.

    data = np.frombuffer(rows, np.uint8)
    if kv_format.kv_dtype in ("int8", "int4"):  # After the integers of a row comes their scale.
        scales = data.reshape(-1, kv_format.row_size)[:, -_SCALE_BYTES:]
        data = np.ascontiguousarray(scales).reshape(-1)
    # As integers, which is faster: a number is finite unless all bits of its exponent are set.
    integers, exponent = _EXPONENTS.get(kv_format.kv_dtype, _EXPONENTS["float32"])
    exponents = np.bitwise_and(data.view(integers), exponent)
    return not bool((exponents == exponent).any())


def _parse_header(data: memoryview) -> Mapping[str, Any]:
    try:
        header = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise PrefixTransferError(f"the header is not JSON: {error}", field="header") from None

    if not isinstance(header, dict):
        raise PrefixTransferError(
            f"the header must be an object, got {short_repr(header)}", field="header"
        )

    return header


def _integer(header: Mapping[str, Any], name: str, least: int, most: int) -> int:
    value = header.get(name)
    if type(value) is not int or not least <= value <= most:
        raise PrefixTransferError(
            f"{name} must be an integer from {least} to {most}, got {short_repr(value)}", field=name
        )

    return value


def _require_equal(name: str, expected: object, value: object) -> None:
    if type(value) is not type(expected) or value != expected:
        raise PrefixTransferError(
            f"{name} must be {expected!r} as in this engine, got {short_repr(value)}: both engines "
            "need the same version, model, quantization, kv_cache_dtype and context settings",
            field=name,
        )
