"""Sums, differences and products."""

from __future__ import annotations

__all__ = ("arithmetic",)

import random

from training.dialogues.records import Fact
from training.dialogues.words import NUMBER_WORDS, PLURALS, person, pick

_PLUS = (
    "What is {a} + {b}?",
    "What is {a} plus {b}?",
    "What's {a} + {b}?",
    "What's {a} plus {b}?",
    "How much is {a} + {b}?",
    "How much is {a} plus {b}?",
    "{a} + {b}",
    "{a} + {b} =",
    "{a} + {b} = ?",
    "{a} + {b}?",
    "{a} plus {b}",
    "{a} plus {b} is?",
    "Add {a} and {b}.",
    "Add {a} to {b}.",
    "Calculate {a} + {b}.",
    "Calculate {a} plus {b}.",
    "Compute {a} + {b}",
    "Solve {a} + {b}.",
    "Work out {a} + {b}.",
    "Tell me {a} + {b}.",
    "What is the sum of {a} and {b}?",
    "Sum of {a} and {b}",
    "Can you add {a} and {b}?",
    "What does {a} + {b} make?",
    "What does {a} plus {b} equal?",
    "How much do {a} and {b} make?",
    "What do I get if I add {a} and {b}?",
    "Can you tell me what {a} + {b} is?",
)
_MINUS = (
    "What is {a} - {b}?",
    "What is {a} minus {b}?",
    "What's {a} - {b}?",
    "What's {a} minus {b}?",
    "How much is {a} - {b}?",
    "How much is {a} minus {b}?",
    "{a} - {b}",
    "{a} - {b} =",
    "{a} - {b} = ?",
    "{a} - {b}?",
    "{a} minus {b}",
    "{a} minus {b} is?",
    "{a} take away {b}",
    "Subtract {b} from {a}.",
    "Take {b} away from {a}.",
    "Calculate {a} - {b}.",
    "Calculate {a} minus {b}.",
    "Compute {a} - {b}",
    "Solve {a} - {b}.",
    "Work out {a} - {b}.",
    "Tell me {a} - {b}.",
    "What does {a} minus {b} equal?",
    "What do I get if I subtract {b} from {a}?",
    "Can you tell me what {a} - {b} is?",
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
    if kind < 0.3:
        return _sum(rng)
    if kind < 0.93:
        return _difference(rng)
    return _product(rng)


def _operand(rng: random.Random) -> int:
    return rng.randint(0, 99) if rng.random() < 0.8 else rng.randint(0, 12)


def _fill(rng: random.Random, template: str, a: int, b: int) -> str:
    in_words = any(word in template for word in ("plus", "minus", "times"))
    if in_words and rng.random() < 0.2:
        return template.format(a=NUMBER_WORDS[a], b=NUMBER_WORDS[b])

    if rng.random() < 0.25:
        for sign in "+-*=":
            template = template.replace(f" {sign}", sign).replace(f"{sign} ", sign)
    return template.format(a=a, b=b)


def _equation(template: str, question: str, sign: str, operands: tuple[int, int]) -> Fact:
    # All operands must be learned: phrasings are held out.
    a, b = operands
    result = {"+": a + b, "-": a - b, "*": a * b}[sign]
    answer = f"{a} {sign} {b} = {result}."
    return Fact(question, answer, str(result), f"{a}{sign}{b}|{template}")


def _tell(rng: random.Random, templates: tuple[str, ...], a: int, b: int, sign: str) -> Fact:
    template = pick(rng, templates)
    name, other, things = person(rng), person(rng), pick(rng, PLURALS)
    question = template.format(a=a, b=b, name=name, other=other, things=things)
    return _equation(template, question, sign, (a, b))


def _ask(rng: random.Random, templates: tuple[str, ...], a: int, b: int, sign: str) -> Fact:
    template = pick(rng, templates)
    return _equation(template, _fill(rng, template, a, b), sign, (a, b))


def _sum(rng: random.Random) -> Fact:
    a, b = _operand(rng), _operand(rng)
    if rng.random() < 0.1:
        return _tell(rng, _MORE_STORIES, max(a, 2), max(b, 2), "+")
    return _ask(rng, _PLUS, a, b, "+")


def _difference(rng: random.Random) -> Fact:
    a, b = _operand(rng), _operand(rng)
    if rng.random() < 0.25:
        b = min(99, max(0, a + rng.randint(-12, 12)))
    if rng.random() < 0.3 and b > a:
        a, b = b, a
    if rng.random() < 0.1:
        return _tell(rng, _LESS_STORIES, max(a, b, 4), max(min(a, b), 2), "-")
    return _ask(rng, _MINUS, a, b, "-")


def _product(rng: random.Random) -> Fact:
    return _ask(rng, _TIMES, rng.randint(0, 10), rng.randint(0, 10), "*")
