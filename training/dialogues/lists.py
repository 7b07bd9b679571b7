"""Parsing of word and phrase lists that are written as one string."""

from __future__ import annotations

__all__ = ("phrases", "words_of")


def words_of(text: str) -> tuple[str, ...]:
    """Split `text` at spaces."""
    return tuple(text.split())


def phrases(text: str) -> tuple[str, ...]:
    """Split `text` at `|`."""
    return tuple(text.split("|"))
