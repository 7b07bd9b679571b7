"""Fill-in-the-middle (FIM) prompts for models whose vocabulary has the tokens for them."""

from __future__ import annotations

__all__ = ("FimTokens", "find_fim_tokens")

from collections.abc import Sequence
from dataclasses import dataclass

from aiomlc.runtime.tokenization.tokenizer import Tokenizer

# The tokens before the prefix, the suffix and the middle.
_FIM_TOKENS = (
    ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),  # Qwen 2.5 Coder
    ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),  # StarCoder
    ("▁<PRE>", "▁<SUF>", "▁<MID>"),  # Code Llama
    ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),  # noqa: RUF001 - DeepSeek Coder
)
_END_TOKENS = ("▁<EOT>", "<|endoftext|>", "<EOT>")


@dataclass(frozen=True, slots=True)
class FimTokens:
    """The ids of a vocabulary's FIM tokens."""

    prefix_id: int
    suffix_id: int
    middle_id: int
    end_ids: tuple[int, ...]  #: Tokens that end the middle.

    def prompt(self, prefix: Sequence[int], suffix: Sequence[int]) -> list[int]:
        """Return the prompt whose completion is the text between prefix and suffix."""
        return [self.prefix_id, *prefix, self.suffix_id, *suffix, self.middle_id]


def find_fim_tokens(tokenizer: Tokenizer) -> FimTokens | None:
    """Return the FIM tokens of a vocabulary, or None if it has none."""
    for tokens in _FIM_TOKENS:
        ids = _find_ids(tokenizer, tokens)
        if len(ids) == len(tokens):
            prefix_id, suffix_id, middle_id = ids
            end_ids = ids + _find_ids(tokenizer, _END_TOKENS)
            return FimTokens(prefix_id, suffix_id, middle_id, end_ids)

    return None


def _find_ids(tokenizer: Tokenizer, tokens: Sequence[str]) -> tuple[int, ...]:
    ids = map(tokenizer.token_id, tokens)
    return tuple(token_id for token_id in ids if token_id is not None)
