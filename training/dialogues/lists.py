"""Long lists, written as text."""

from __future__ import annotations

__all__ = ("phrases", "words_of")


def words_of(text: str) -> tuple[str, ...]:
    """Cut `text` at its spaces."""
    return tuple(text.split())


def phrases(text: str) -> tuple[str, ...]:
    """Cut `text` at its bars."""
    return tuple(text.split("|"))
