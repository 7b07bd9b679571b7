"""The tables with which native code tokenizes forced text by byte-pair encoding."""

from __future__ import annotations

__all__ = ("BytePairs", "read_byte_pairs")

import array
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class BytePairs:
    """The merges of a byte-pair encoding, packed in native byte order."""

    merges: bytes  #: int32[n, 3] in order of priority: the left, right and merged token id.
    #: Token ids by UTF-8 character, if merging starts from characters; empty if from bytes.
    characters: dict[bytes, int]
    bytes: bytes  #: int32[256]: the token id of every byte.


def read_byte_pairs(
    model: Mapping[str, Any], to_bytes: Callable[[str], bytes], *, by_character: bool
) -> BytePairs | None:
    """Return the tables of the `model` object of a `tokenizer.json`.

    Args:
        model: The `model` object.
        to_bytes: Returns the text of a token as bytes.
        by_character: Whether merging starts from characters rather than bytes.

    Returns:
        None if the model is not a byte-pair encoding or lacks a token for some byte.
    """
    vocab: dict[str, int] = model.get("vocab", {}) if model.get("type") == "BPE" else {}
    byte_ids = _byte_ids(vocab, to_bytes, by_character)
    if byte_ids is None:
        return None

    packed = array.array("i")
    for left, right in _token_pairs(model["merges"]):
        merged = left + right
        if left in vocab and right in vocab and merged in vocab:
            packed.extend((vocab[left], vocab[right], vocab[merged]))

    characters = {}
    if by_character:
        characters = {
            to_bytes(token): token_id for token, token_id in vocab.items() if len(token) == 1
        }

    return BytePairs(packed.tobytes(), characters, array.array("i", byte_ids).tobytes())


def _byte_ids(
    vocab: Mapping[str, int], to_bytes: Callable[[str], bytes], by_character: bool
) -> list[int] | None:
    """Return the token ids of all 256 bytes; None if a byte has no token."""
    token_ids = {}
    for token, token_id in vocab.items():
        is_byte = token.startswith("<0x") if by_character else len(token) == 1
        if is_byte and len(text := to_bytes(token)) == 1:
            token_ids[text[0]] = token_id

    return [token_ids[byte] for byte in range(256)] if len(token_ids) == 256 else None


def _token_pairs(merges: Iterable[str | list[str]]) -> Iterable[tuple[str, str]]:
    for merge in merges:
        left, right = merge.split(" ") if isinstance(merge, str) else merge
        yield left, right
