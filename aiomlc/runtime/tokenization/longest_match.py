"""Tokens for text that a tokenizer cannot write."""

from __future__ import annotations

__all__ = ("LongestMatch",)

from collections.abc import Sequence
from typing import final


@final
class LongestMatch:
    """Finds tokens whose bytes are exactly a text, each as long as possible.

    A tokenizer may not: it reads the name of a special token as that token, and may normalize.
    """

    def __init__(self, tokens: Sequence[bytes]) -> None:
        """Index the bytes of each token; those of a special token must not occur in text."""
        self._ids: dict[bytes, int] = {}
        lengths: dict[int, set[int]] = {}
        for token_id, token in enumerate(tokens):
            if token:
                self._ids.setdefault(token, token_id)
                lengths.setdefault(token[0], set()).add(len(token))
        self._lengths = {first: sorted(each, reverse=True) for first, each in lengths.items()}

    def encode(self, text: bytes) -> list[int]:
        """Return the tokens of a text, up to the first byte that no token continues with."""
        ids: list[int] = []
        start = 0
        while start < len(text):
            for length in self._lengths.get(text[start], ()):
                token_id = self._ids.get(text[start : start + length])
                if token_id is not None and start + length <= len(text):
                    break
            else:
                break
            ids.append(token_id)
            start += length
        return ids
