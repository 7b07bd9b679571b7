"""Log-probabilities as the native core writes them, which are unpacked when they are read."""

from __future__ import annotations

__all__ = ("PackedLogprobs", "join_logprobs")

import struct
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import final, overload

from aiomlc.runtime.engine.core_protocol import TokenLogprob

# A token's id, its logprob and the number of alternatives that follow it; an alternative.
_LOGPROB = struct.Struct("<ifI")
_ALTERNATIVE = struct.Struct("<if")


@final
class PackedLogprobs(Sequence[TokenLogprob]):
    """A sequence of log-probabilities that is one object, however many alternatives it has.

    Unpacked, the alternatives of a batch would be a million objects, which the garbage collector
    visits again and again.
    """

    __slots__ = ("_length", "_packed")

    def __init__(self, packed: bytes) -> None:
        self._packed = packed
        self._length: int | None = None

    @classmethod
    def join(cls, parts: Sequence[PackedLogprobs]) -> PackedLogprobs:
        """Return the sequences one after the other."""
        return cls(b"".join([part._packed for part in parts]))

    def __len__(self) -> int:
        if self._length is None:
            self._length = sum(1 for _ in self._offsets())

        return self._length

    def __bool__(self) -> bool:
        return bool(self._packed)

    def __iter__(self) -> Iterator[TokenLogprob]:
        for offset in self._offsets():
            token_id, logprob, num_top = _LOGPROB.unpack_from(self._packed, offset)
            start = offset + _LOGPROB.size
            top = self._packed[start : start + num_top * _ALTERNATIVE.size]
            yield TokenLogprob(token_id, logprob, tuple(_ALTERNATIVE.iter_unpack(top)))

    @overload
    def __getitem__(self, index: int) -> TokenLogprob: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[TokenLogprob, ...]: ...
    def __getitem__(self, index: int | slice) -> TokenLogprob | tuple[TokenLogprob, ...]:
        return tuple(self)[index]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, PackedLogprobs):
            return self._packed == other._packed

        return tuple(self) == other

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))

    def _offsets(self) -> Iterator[int]:
        offset = 0
        while offset < len(self._packed):
            yield offset
            _, _, num_top = _LOGPROB.unpack_from(self._packed, offset)
            offset += _LOGPROB.size + num_top * _ALTERNATIVE.size


def join_logprobs(parts: Sequence[Sequence[TokenLogprob]]) -> Sequence[TokenLogprob]:
    """Return log-probabilities one after the other, packed if all are."""
    packed = [part for part in parts if isinstance(part, PackedLogprobs)]
    if not packed:
        return tuple(chain.from_iterable(parts))

    if len(parts) == 1:
        return parts[0]

    # An empty part is a tuple.
    assert all(isinstance(part, PackedLogprobs) or not part for part in parts)
    return PackedLogprobs.join(packed)
