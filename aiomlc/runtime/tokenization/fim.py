"""How a model is told to fill a gap, by tokens that models trained for it have."""

from __future__ import annotations

__all__ = ("FimTokens", "find_fim_tokens")

from collections.abc import Sequence
from dataclasses import dataclass

from aiomlc.runtime.tokenization.tokenizer import Tokenizer

# What stands before the text, before what follows the gap, and before what fills it.
_MARKS = (
    ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),  # Qwen 2.5 Coder
    ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),  # StarCoder
    ("▁<PRE>", "▁<SUF>", "▁<MID>"),  # Code Llama
    ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),  # noqa: RUF001 - DeepSeek Coder
)
_ENDS = ("▁<EOT>", "<|endoftext|>", "<EOT>")


@dataclass(frozen=True, slots=True)
class FimTokens:
    """The ids of the three marks, and of those that end what fills the gap."""

    before_prefix: int
    before_suffix: int
    before_middle: int
    ends: tuple[int, ...]

    def prompt(self, prefix: Sequence[int], suffix: Sequence[int]) -> list[int]:
        """The prompt whose completion goes between the two."""
        return [self.before_prefix, *prefix, self.before_suffix, *suffix, self.before_middle]


def find_fim_tokens(tokenizer: Tokenizer) -> FimTokens | None:
    """The marks in a vocabulary; None if it has none that we know."""
    for marks in _MARKS:
        ids = _known(tokenizer, marks)
        if len(ids) == len(marks):
            prefix, suffix, middle = ids
            return FimTokens(prefix, suffix, middle, ids + _known(tokenizer, _ENDS))

    return None


def _known(tokenizer: Tokenizer, tokens: Sequence[str]) -> tuple[int, ...]:
    ids = map(tokenizer.token_id, tokens)
    return tuple(token_id for token_id in ids if token_id is not None)
