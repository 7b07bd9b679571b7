"""The merges of a SentencePiece model, which a GGUF file has only as scores."""

from __future__ import annotations

__all__ = ("merges_from_scores",)

from collections.abc import Collection, Mapping, Sequence


def merges_from_scores(
    tokens: Sequence[str], scores: Sequence[float], pieces: Collection[int]
) -> list[tuple[str, str]]:
    """Return the merges that give SentencePiece's segmentation, the first one first.

    SentencePiece merges the neighbors whose concatenation has the highest score, so every way to
    divide a token into two tokens is a merge. The order among equal scores is that of transformers.

    Args:
        tokens: All tokens by id.
        scores: Their scores.
        pieces: The ids of the tokens that merging may start from and lead to.
    """
    ids = {tokens[index]: index for index in pieces}
    ranked: list[tuple[float, int, int, int, str, str]] = []
    for token, index in ids.items():
        for left, right in _halves(token, ids):
            ranked.append((-scores[index], -len(left), -len(right), index, left, right))
    ranked.sort()
    return [(left, right) for *_, left, right in ranked]


def _halves(token: str, ids: Mapping[str, int]) -> list[tuple[str, str]]:
    return [
        (token[:end], token[end:])
        for end in range(1, len(token))
        if token[:end] in ids and token[end:] in ids
    ]
