"""The maximum bytes of text per token, from the configuration of a tokenizer."""

from __future__ import annotations

__all__ = ("max_bytes_per_token",)

import math
from collections.abc import Collection, Mapping
from typing import Any

import tokenizers
import tokenizers.models

from aiomlc.runtime.tokenization.token_decoder import section_config

# Pre-tokenizers that keep every character of a text.
_LOSSLESS_PRE_TOKENIZERS = frozenset({"ByteLevel", "Digits", "Metaspace", "Punctuation"})
# A composed character has at most as many bytes less than its parts (Hangul syllables).
_COMPOSITION_FACTOR = 3


def max_bytes_per_token(backend: tokenizers.Tokenizer, vocabulary: Collection[bytes]) -> int | None:
    """Return the most bytes of a prompt that one token can stand for; None if there is no bound.

    There is none if the tokenizer drops text, such as repeated spaces or unknown characters.
    """
    covers_all_bytes = {bytes([byte]) for byte in range(256)} <= set(vocabulary)
    added = backend.get_added_tokens_decoder().values()
    if (
        not isinstance(backend.model, tokenizers.models.BPE)
        or not covers_all_bytes
        or any(token.lstrip or token.rstrip for token in added)
        or not _is_lossless(section_config(backend.pre_tokenizer))
    ):
        return None

    factor = _shrink_factor(section_config(backend.normalizer))
    if factor is None:
        return None

    longest = max(map(len, (*vocabulary, *(token.content.encode() for token in added))))
    return math.ceil(longest * factor)


def _is_lossless(pre_tokenizer: Mapping[str, Any] | None) -> bool:
    if pre_tokenizer is None:
        return True

    kind = pre_tokenizer["type"]
    if kind == "Sequence":
        return all(map(_is_lossless, pre_tokenizer["pretokenizers"]))

    if kind == "Split":
        return pre_tokenizer.get("behavior") != "Removed"

    return kind in _LOSSLESS_PRE_TOKENIZERS


def _shrink_factor(normalizer: Mapping[str, Any] | None) -> float | None:
    """Return how many bytes of a text one byte of its normal form stands for; None: any number."""
    if normalizer is None:
        return 1

    match normalizer["type"]:
        case "Sequence":
            factors = [_shrink_factor(each) for each in normalizer["normalizers"]]
            known = [factor for factor in factors if factor is not None]
            return math.prod(known) if len(known) == len(factors) else None
        case "NFC":
            return _COMPOSITION_FACTOR
        case "Prepend":
            return 1
        case "Replace":
            old, new = normalizer["pattern"].get("String"), normalizer["content"]
            return max(1, len(old.encode()) / len(new.encode())) if old and new else None
        case _:
            return None
