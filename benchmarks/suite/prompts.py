"""Chat messages whose prompts have an exact number of tokens."""

from __future__ import annotations

__all__ = ("Prompts",)

import itertools
import random
from pathlib import Path
from typing import final

from tokenizers import Tokenizer

_NUM_WORDS = 512


@final
class Prompts:
    """Generator of unique prompts of random words of one token each."""

    def __init__(self, model: Path) -> None:
        tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
        words = (f" {token[1:]}" for token in sorted(tokenizer.get_vocab()) if _is_word(token))
        single_tokens = (word for word in words if len(tokenizer.encode(word).ids) == 1)
        self._words = list(itertools.islice(single_tokens, _NUM_WORDS))
        if not self._words:
            raise RuntimeError(f"{model}: the tokenizer has no token that is an entire word")

        self._random = random.Random(0)
        self._template_tokens = 0

    def calibrate(self, prompt_tokens: int, words: int) -> None:
        """Set the tokens that the chat template adds; `words` words gave `prompt_tokens`."""
        self._template_tokens = prompt_tokens - words

    def words(self, count: int) -> str:
        """Return text of `count` tokens, without those of the template."""
        return "".join(self._random.choices(self._words, k=count))

    def message(self, tokens: int) -> str:
        """Return the content of a user message whose prompt has `max(tokens, fewest())` tokens."""
        return self.words(max(1, tokens - self._template_tokens))

    def fewest(self) -> int:
        """Return the number of tokens of the shortest prompt."""
        return self._template_tokens + 1


def _is_word(token: str) -> bool:
    # Byte-level tokenizers encode a space as "Ġ".
    return len(token) > 3 and token[0] == "Ġ" and token[1:].isascii() and token[1:].isalpha()
