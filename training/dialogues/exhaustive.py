"""All questions for sums, differences and comparisons of numbers to 99, and many extractions."""

from __future__ import annotations

__all__ = ("NUMBER_KINDS", "exhaustive_facts", "extraction_facts", "number_facts")

import itertools
import random
from collections.abc import Iterator

from training.dialogues.extraction import constrained_extraction, extraction
from training.dialogues.records import Fact, is_held_out

_SEED = 2026
_EXTRACTIONS = 2000

_NUMBER_QUESTIONS = {
    "sums": "What is {a} + {b}?",
    "differences": "What is {a} - {b}?",
    "bigger": "Which is bigger, {a} or {b}?",
    "smaller": "Which is smaller, {a} or {b}?",
    "is bigger": "Is {a} bigger than {b}?",
    "is smaller": "Is {a} smaller than {b}?",
}
NUMBER_KINDS = tuple(_NUMBER_QUESTIONS)


def exhaustive_facts() -> dict[str, list[Fact]]:
    """Return all questions of each kind, by the name of the kind."""
    facts = {kind: list(number_facts(kind)) for kind in NUMBER_KINDS}
    facts["extraction"] = list(extraction_facts(_EXTRACTIONS, constrained=False))
    facts["constrained extraction"] = list(extraction_facts(_EXTRACTIONS, constrained=True))
    return facts


def number_facts(kind: str) -> Iterator[Fact]:
    """Yield the question `kind` of `exhaustive_facts` for every two numbers to 99."""
    for a, b in itertools.product(range(100), repeat=2):
        question = _NUMBER_QUESTIONS[kind].format(a=a, b=b)
        yield Fact(question, _number_answer(kind, a, b), "", question)


def _number_answer(kind: str, a: int, b: int) -> str:
    if kind == "sums":
        return f"{a} + {b} = {a + b}."
    if kind == "differences":
        return f"{a} - {b} = {a - b}."
    word = kind.removeprefix("is ")
    if kind in ("bigger", "smaller"):
        first, second = sorted((a, b), reverse=word == "bigger")
        return f"{a} and {b} are equal." if a == b else f"{first} is {word} than {second}."
    holds = a > b if word == "bigger" else a < b
    return f"Yes, {a} is {word} than {b}." if holds else f"No, {a} is not {word} than {b}."


def extraction_facts(count: int, *, constrained: bool) -> Iterator[Fact]:
    """Yield held-out extractions, whose keys are in the prompt or `constrained` by a grammar."""
    rng = random.Random(_SEED)
    while count:
        fact = constrained_extraction(rng) if constrained else extraction(rng)
        if is_held_out(fact.key):
            count -= 1
            yield fact
