"""The choice of the turns that fit into the context window of a model."""

from __future__ import annotations

__all__ = ("ContextBudget",)

from collections.abc import Sequence
from typing import final

# Until the first response shows how many they are.
_TEMPLATE_TOKENS = 16


@final
class ContextBudget:
    """Estimates the size of prompts, and learns how many tokens a chat template adds to a turn.

    Args:
        window: The maximum number of tokens of a prompt with its answer.
    """

    def __init__(self, window: int) -> None:
        self.window = window
        self._template_tokens = _TEMPLATE_TOKENS  #: Estimated template tokens per turn.
        self._content_tokens = 0  #: Content tokens of the last prompt.
        self._num_turns = 1  #: Turns in the last prompt, including the new question.

    def turns_to_forget(self, question: int, turns: Sequence[int]) -> int:
        """Return how many of the oldest turns to forget, to leave a quarter of the window.

        Then they fill at most half of the window, because each time the rest of the prompt has to
        be computed anew.

        Args:
            question: The tokens of the new question and the system message.
            turns: The tokens of each turn so far.
        """
        start = 0
        if self._size(question, turns) > self.window * 3 // 4:
            while start < len(turns) and self._size(question, turns[start:]) > self.window // 2:
                start += 1

        self._content_tokens = question + sum(turns[start:])
        self._num_turns = len(turns) - start + 1
        return start

    @property
    def prompt_tokens(self) -> int:
        """The estimated tokens of the last prompt."""
        return self._content_tokens + self._template_tokens * self._num_turns

    def used_tokens(self, system: int, turns: Sequence[int]) -> int:
        """Return the estimated tokens of a conversation without a new question.

        Args:
            system: The tokens of the system message.
            turns: The tokens of each turn.
        """
        return system + sum(turns) + self._template_tokens * len(turns)

    def learn(self, prompt_tokens: int) -> None:
        """Learn from the measured size of the last prompt."""
        added = prompt_tokens - self._content_tokens
        self._template_tokens = max(self._template_tokens, -(-added // self._num_turns))

    def _size(self, question: int, turns: Sequence[int]) -> int:
        return question + sum(turns) + self._template_tokens * (len(turns) + 1)
