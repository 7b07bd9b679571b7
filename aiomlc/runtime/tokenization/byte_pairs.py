"""A tokenizer's byte-pair encoding as the tables that native code cuts forced text by."""

from __future__ import annotations

__all__ = ("BytePairs", "read_byte_pairs")

import array
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class BytePairs:
    """Packed in the machine's byte order."""

    merges: bytes  #: int32[n, 3], by priority: the left token, the right one, what they become.
    characters: dict[bytes, int]  #: Tokens of single characters, where text is cut into those.
    bytes: bytes  #: int32[256]: the token of every byte.


def read_byte_pairs(
    model: Mapping[str, Any], to_bytes: Callable[[str], bytes], *, by_character: bool
) -> BytePairs | None:
    """The tables of a `tokenizer.json`'s `model`.

    None if it is no byte-pair encoding, or one that cannot cut every text.
    """
    vocab: dict[str, int] = model.get("vocab", {}) if model.get("type") == "BPE" else {}
    byte_ids = _byte_ids(vocab, to_bytes, by_character)
    if byte_ids is None:
        return None

    packed = array.array("i")
    for left, right in _pairs(model["merges"]):
        merged = left + right
        if left in vocab and right in vocab and merged in vocab:
            packed.extend((vocab[left], vocab[right], vocab[merged]))

    characters = {}
    if by_character:
        characters = {to_bytes(token): number for token, number in vocab.items() if len(token) == 1}

    return BytePairs(packed.tobytes(), characters, array.array("i", byte_ids).tobytes())


def _byte_ids(
    vocab: Mapping[str, int], to_bytes: Callable[[str], bytes], by_character: bool
) -> list[int] | None:
    """The token of every byte; None if one has none."""
    known = {}
    for token, number in vocab.items():
        is_byte = token.startswith("<0x") if by_character else len(token) == 1
        if is_byte and len(added := to_bytes(token)) == 1:
            known[added[0]] = number

    return [known[byte] for byte in range(256)] if len(known) == 256 else None


def _pairs(merges: Iterable[str | list[str]]) -> Iterable[tuple[str, str]]:
    for merge in merges:
        left, right = merge.split(" ") if isinstance(merge, str) else merge
        yield left, right
