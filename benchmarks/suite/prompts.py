"""Chat messages whose prompts have an exact number of tokens."""

from __future__ import annotations

__all__ = ("Prompts",)

import itertools
import random
from pathlib import Path
from typing import final

from tokenizers import Tokenizer

_WORDS = 512


@final
class Prompts:
    """Makes a prompt of random words that are one token each; never the same one twice."""

    def __init__(self, model: Path) -> None:
        tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
        words = (f" {token[1:]}" for token in sorted(tokenizer.get_vocab()) if _is_word(token))
        whole = (word for word in words if len(tokenizer.encode(word).ids) == 1)
        self._words = list(itertools.islice(whole, _WORDS))
        if not self._words:
            raise RuntimeError(f"{model}: the tokenizer has no token that is a whole word")

        self._random = random.Random(0)
        self._around = 0

    def calibrate(self, prompt_tokens: int, words: int) -> None:
        """Learn how many tokens the chat template adds: `words` gave `prompt_tokens`."""
        self._around = prompt_tokens - words

    def words(self, count: int) -> str:
        """Text of that many tokens, without what the template adds."""
        return "".join(self._random.choices(self._words, k=count))

    def message(self, tokens: int) -> str:
        """The content of one user's message whose prompt has `tokens` tokens, or the fewest."""
        return self.words(max(1, tokens - self._around))

    def fewest(self) -> int:
        """Tokens of the shortest prompt."""
        return self._around + 1


def _is_word(token: str) -> bool:
    # Byte-level tokenizers write a space as "Ġ".
    return len(token) > 3 and token[0] == "Ġ" and token[1:].isascii() and token[1:].isalpha()
