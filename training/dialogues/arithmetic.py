"""Sums, differences and products."""

from __future__ import annotations

__all__ = ("arithmetic",)

import random

from training.dialogues.records import Fact
from training.dialogues.words import NUMBER_WORDS, PLURALS, person, pick

_PLUS = (
    "What is {a} + {b}?",
    "What is {a} plus {b}?",
    "{a} + {b}",
    "{a}+{b}",
    "{a}+{b}=?",
    "{a} + {b} = ?",
    "Add {a} and {b}.",
    "How much is {a} + {b}?",
    "How much is {a} plus {b}?",
    "Calculate {a} + {b}.",
    "Compute {a} + {b}",
    "What's {a} + {b}?",
    "What is the sum of {a} and {b}?",
    "Can you add {a} and {b}?",
)
_MINUS = (
    "What is {a} - {b}?",
    "What is {a} minus {b}?",
    "{a} - {b}",
    "{a}-{b}",
    "{a}-{b}=?",
    "{a} - {b} = ?",
    "Subtract {b} from {a}.",
    "How much is {a} - {b}?",
    "How much is {a} minus {b}?",
    "Calculate {a} - {b}.",
    "Compute {a} - {b}",
    "What's {a} - {b}?",
    "Take {b} away from {a}.",
)
_TIMES = (
    "What is {a} * {b}?",
    "What is {a} times {b}?",
    "What is {a} x {b}?",
    "{a} * {b}",
    "{a}*{b}",
    "{a} * {b} = ?",
    "Multiply {a} by {b}.",
    "Multiply {a} and {b}.",
    "How much is {a} times {b}?",
    "Calculate {a} * {b}.",
    "What's {a} times {b}?",
    "What is the product of {a} and {b}?",
)
_MORE_STORIES = (
    "{name} has {a} {things} and gets {b} more. How many {things} does {name} have now?",
    "{name} buys {a} {things} on one day and {b} on the next. How many {things} is that?",
    "There are {a} {things} in a box. {name} adds {b} {things}. How many are there now?",
    "{name} has {a} {things} and {other} has {b}. How many {things} do they have together?",
    "I have {a} {things} and find {b} more. How many {things} do I have?",
)
_LESS_STORIES = (
    "{name} has {a} {things} and loses {b}. How many {things} are left?",
    "{name} has {a} {things} and gives {b} to {other}. How many {things} does {name} have now?",
    "There are {a} {things} on the table. {name} takes {b} away. How many are left?",
    "I have {a} {things} and give away {b}. How many {things} do I have left?",
)


def arithmetic(rng: random.Random) -> Fact:
    """Draw an addition, a subtraction or a multiplication of small numbers."""
    kind = rng.random()
    if kind < 0.44:
        return _sum(rng)
    if kind < 0.86:
        return _difference(rng)
    return _product(rng)


def _operand(rng: random.Random) -> int:
    return rng.randint(0, 99) if rng.random() < 0.85 else rng.randint(0, 20)


def _fill(rng: random.Random, template: str, a: int, b: int) -> str:
    in_words = any(word in template for word in ("plus", "minus", "times"))
    if in_words and rng.random() < 0.3:
        return template.format(a=NUMBER_WORDS[a], b=NUMBER_WORDS[b])

    return template.format(a=a, b=b)


def _equation(question: str, sign: str, operands: tuple[int, int], result: int) -> Fact:
    a, b = operands
    return Fact(question, f"{a} {sign} {b} = {result}.", str(result), f"{a}{sign}{b}")


def _sum(rng: random.Random) -> Fact:
    a, b = _operand(rng), _operand(rng)
    if rng.random() < 0.15:
        a, b = max(a, 2), max(b, 2)
        question = pick(rng, _MORE_STORIES).format(
            a=a, b=b, name=person(rng), other=person(rng), things=pick(rng, PLURALS)
        )
    else:
        question = _fill(rng, pick(rng, _PLUS), a, b)
    return _equation(question, "+", (a, b), a + b)


def _difference(rng: random.Random) -> Fact:
    a, b = _operand(rng), _operand(rng)
    if rng.random() < 0.6 and b > a:
        a, b = b, a
    if rng.random() < 0.15:
        a, b = max(a, b, 4), max(min(a, b), 2)
        question = pick(rng, _LESS_STORIES).format(
            a=a, b=b, name=person(rng), other=person(rng), things=pick(rng, PLURALS)
        )
    else:
        question = _fill(rng, pick(rng, _MINUS), a, b)
    return _equation(question, "-", (a, b), a - b)


def _product(rng: random.Random) -> Fact:
    a, b = rng.randint(0, 10), rng.randint(0, 10)
    template = pick(rng, _TIMES)
    fact = _equation(_fill(rng, template, a, b), "*", (a, b), a * b)
    # The table is so small that all of it must be learned: phrasings are held out, not products.
    return Fact(fact.question, fact.answer, fact.core, f"{fact.key}|{template}")
