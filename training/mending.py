"""Practice of the questions about two numbers that a trained model still answers wrongly."""

from __future__ import annotations

__all__ = ("practice",)

import random
from collections.abc import Callable, Sequence

from training.dialogues.compose import conversation
from training.dialogues.records import Dialogue, Fact, Message, say

_SHARE = 0.3  # Fraction of the dialogues that practice wrong answers.
_MAX_TURNS = 4


def practice(facts: Sequence[Fact]) -> Callable[[random.Random], Dialogue]:
    """Return a function that draws a conversation, often one that asks for some of `facts`."""

    def draw(rng: random.Random) -> Dialogue:
        if not facts or rng.random() >= _SHARE:
            return conversation(rng)
        messages: list[Message] = []
        for fact in rng.choices(facts, k=rng.randint(1, _MAX_TURNS)):
            messages += [say("user", fact.question), say("assistant", fact.answer, fact.values)]
        return Dialogue("chat", tuple(messages), "")

    return draw
