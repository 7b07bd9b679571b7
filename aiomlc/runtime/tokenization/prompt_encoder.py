"""The encoding of prompts, which refuses those that cannot fit the context window by their size."""

from __future__ import annotations

__all__ = ("MAX_PROMPT_CHARACTERS", "PromptEncoder")

from collections.abc import Callable
from typing import final

from aiomlc.errors import PromptTooLongError
from aiomlc.runtime.tokenization.tokenizer import Tokenizer

#: The maximum number of characters of a prompt.
MAX_PROMPT_CHARACTERS = 2_000_000
_CHUNK = 20_000  # Characters that are encoded at a time to count the tokens of a long text.
# Texts with fewer characters per token of the context window are encoded without counting.
_CHARACTERS_PER_TOKEN = 8


@final
class PromptEncoder:
    """The tokenizer of a model with its context window. Thread-safe."""

    def __init__(self, tokenizer: Tokenizer, context_window: int) -> None:
        self._tokenizer = tokenizer
        self._context_window = context_window

    def check_size(self, text: str) -> None:
        """Require that a text could fit the context window, without encoding it.

        Raises:
            PromptTooLongError: If it cannot, as every token stands for a limited number of bytes;
                or if it has more than `MAX_PROMPT_CHARACTERS`.
        """
        longest = self._tokenizer.max_bytes_per_token
        if longest is not None and len(text) * 4 >= longest * self._context_window:
            self._check_number(len(text.encode(errors="replace")) // longest)

        self.check_characters(len(text))

    def check_characters(self, number: int) -> None:
        """Require that a prompt may have this many characters.

        Raises:
            PromptTooLongError: If there are more than `MAX_PROMPT_CHARACTERS`.
        """
        if number <= MAX_PROMPT_CHARACTERS:
            return

        longest = self._tokenizer.max_bytes_per_token
        if longest is not None:
            self._check_number(number // longest)

        raise PromptTooLongError(
            f"prompt has at least {number} characters, at most {MAX_PROMPT_CHARACTERS} are "
            "supported",
            context_window=self._context_window,
        )

    def encode(
        self,
        text: str,
        is_cancelled: Callable[[], bool] = lambda: False,
        *,
        method: Callable[[Tokenizer, str], list[int]] = Tokenizer.encode,
    ) -> list[int]:
        """Return the token ids of a prompt.

        Args:
            method: The method of the tokenizer that encodes it.

        Raises:
            PromptTooLongError: If the text has many times as many tokens as the context window.
            BadRequestError: If `text` is not a string or contains a lone surrogate.
        """
        if isinstance(text, str) and len(text) > _CHUNK:
            self.check_size(text)
            if len(text) > _CHARACTERS_PER_TOKEN * self._context_window:
                self._count(text, is_cancelled)

        return [] if is_cancelled() else method(self._tokenizer, text)

    def _count(self, text: str, is_cancelled: Callable[[], bool]) -> None:
        """Refuse a text whose parts have more than twice the tokens of the context window.

        A token at the boundary of two parts may be split, so the sum is an estimate.
        """
        number = 0
        for start in range(0, len(text), _CHUNK):
            if is_cancelled():
                return

            number += len(self._tokenizer.encode(text[start : start + _CHUNK]))
            self._check_number(number // 2)

    def _check_number(self, at_least: int) -> None:
        if at_least >= self._context_window:
            raise PromptTooLongError(
                f"prompt has at least {at_least} tokens, context window is {self._context_window}; "
                "shorten it, or raise max_single_sequence_length up to the model's maximum",
                prompt_tokens=at_least,
                context_window=self._context_window,
            )
