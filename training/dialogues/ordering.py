"""Counting, comparing and sorting."""

from __future__ import annotations

__all__ = ("comparing", "counting", "sorting")

import random

from training.dialogues.records import Fact
from training.dialogues.words import COMMON_WORDS, pick


def counting(rng: random.Random) -> Fact:
    """Draw a task of counting, or of finding a position in a list."""
    return pick(rng, (_count_up, _count_up, _count_down, _count_steps, _neighbor, _nth, _how_many))(
        rng
    )


def _joined(numbers: range) -> str:
    return ", ".join(map(str, numbers))


def _count_up(rng: random.Random) -> Fact:
    start = rng.randint(0, 85) if rng.random() < 0.8 else 1
    end = start + rng.randint(2, 14)
    template = pick(
        rng,
        (
            "Count from {a} to {b}.",
            "Count up from {a} to {b}.",
            "Please count from {a} to {b}.",
            "Can you count from {a} to {b}?",
            "List the numbers from {a} to {b}.",
        ),
    )
    listed = _joined(range(start, end + 1))
    return Fact(template.format(a=start, b=end), listed + ".", listed, f"count {start} {end}")


def _count_down(rng: random.Random) -> Fact:
    end = rng.randint(0, 85)
    start = end + rng.randint(2, 12)
    template = pick(
        rng,
        (
            "Count down from {a} to {b}.",
            "Count backwards from {a} to {b}.",
            "Can you count down from {a} to {b}?",
            "Count from {a} down to {b}.",
        ),
    )
    listed = _joined(range(start, end - 1, -1))
    return Fact(template.format(a=start, b=end), listed + ".", listed, f"down {start} {end}")


def _count_steps(rng: random.Random) -> Fact:
    word, step = pick(rng, (("twos", 2), ("fives", 5), ("tens", 10), ("threes", 3)))
    start = step * rng.randint(0, 8)
    end = start + step * rng.randint(2, 9)
    template = pick(
        rng,
        (
            "Count by {w} from {a} to {b}.",
            "Count in {w} from {a} to {b}.",
            "Count from {a} to {b} by {w}.",
            "Count from {a} to {b} in steps of {s}.",
        ),
    )
    listed = _joined(range(start, end + 1, step))
    question = template.format(w=word, a=start, b=end, s=step)
    return Fact(question, listed + ".", listed, f"steps {step} {start} {end}")


def _neighbor(rng: random.Random) -> Fact:
    number = rng.randint(1, 198)
    template, side = pick(
        rng,
        (
            ("What number comes after {n}?", 1),
            ("Which number comes after {n}?", 1),
            ("What comes after {n}?", 1),
            ("What is the number after {n}?", 1),
            ("What number comes before {n}?", -1),
            ("Which number comes before {n}?", -1),
            ("What comes before {n}?", -1),
            ("What is the number before {n}?", -1),
        ),
    )
    word = "after" if side > 0 else "before"
    core = str(number + side)
    answer = f"{core} comes {word} {number}."
    return Fact(template.format(n=number), answer, core, f"{core} {word} {number}")


_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth")


def _word_list(rng: random.Random, low: int, high: int) -> list[str]:
    return rng.sample(COMMON_WORDS, rng.randint(low, high))


def _nth(rng: random.Random) -> Fact:
    words = _word_list(rng, 3, 6)
    index = rng.randrange(len(words))
    ordinal = _ORDINALS[index]
    if index == len(words) - 1 and rng.random() < 0.5:
        ordinal = "last"
    template = pick(
        rng,
        (
            "What is the {o} word in this list: {l}?",
            "Which word is {o} in the list {l}?",
            "Here is a list: {l}. Which word is {o}?",
            "Give me the {o} word of: {l}.",
        ),
    )
    listed = ", ".join(words)
    answer = f"The {ordinal} word is {words[index]}."
    return Fact(template.format(o=ordinal, l=listed), answer, words[index], f"nth {index} {listed}")


def _how_many(rng: random.Random) -> Fact:
    words = _word_list(rng, 2, 7)
    listed = ", ".join(words)
    template = pick(
        rng,
        (
            "How many words are in this list: {l}?",
            "How many words are there: {l}?",
            "Count the words: {l}.",
            "Here is a list: {l}. How many words does it have?",
        ),
    )
    core = str(len(words))
    return Fact(template.format(l=listed), f"The list has {core} words.", core, f"many {listed}")


_BIGGER = ("bigger", "larger", "greater")
_SMALLER = ("smaller", "less")
_WHICH = (
    "Which is {w}, {a} or {b}?",
    "Which is {w}: {a} or {b}?",
    "Which number is {w}: {a} or {b}?",
    "Which number is {w}, {a} or {b}?",
    "Which one is {w}, {a} or {b}?",
    "Which of {a} and {b} is {w}?",
    "What is {w}, {a} or {b}?",
    "What's {w}, {a} or {b}?",
    "{a} or {b}: which is {w}?",
    "{a} or {b}, which is {w}?",
    "Which is the {w} number, {a} or {b}?",
    "Is {a} or {b} {w}?",
)


def comparing(rng: random.Random) -> Fact:
    """Draw a comparison of two or three numbers."""
    return pick(rng, (_which_of_two, _which_of_two, _which_of_three, _yes_or_no, _yes_or_no))(rng)


def _number(rng: random.Random) -> int:
    return rng.randint(0, pick(rng, (9, 99, 99, 99, 999)))


def _different(rng: random.Random, count: int) -> list[int]:
    numbers: list[int] = []
    while len(numbers) < count:
        number = _number(rng)
        if numbers and rng.random() < 0.4:
            number = min(999, numbers[-1] + rng.randint(1, 12))
        if number not in numbers:
            numbers.append(number)
    rng.shuffle(numbers)
    return numbers


def _two(rng: random.Random) -> list[int]:
    return [_number(rng)] * 2 if rng.random() < 0.04 else _different(rng, 2)


def _which_of_two(rng: random.Random) -> Fact:
    a, b = _two(rng)
    up = rng.random() < 0.5
    word = pick(rng, _BIGGER) if up else "smaller"
    template = pick(rng, _WHICH)
    core, other = (max(a, b), min(a, b)) if up else (min(a, b), max(a, b))
    answer = f"{core} is {word} than {other}." if a != b else f"{a} and {b} are equal."
    return Fact(template.format(w=word, a=a, b=b), answer, str(core), f"{template} {up} {a} {b}")


def _which_of_three(rng: random.Random) -> Fact:
    numbers = _different(rng, 3)
    word, chosen = pick(rng, (("largest", max), ("biggest", max), ("smallest", min)))
    template = pick(
        rng,
        (
            "Which is the {w}: {a}, {b} or {c}?",
            "What is the {w} of {a}, {b} and {c}?",
            "Find the {w} number: {a}, {b}, {c}.",
            "Which number is the {w}, {a}, {b} or {c}?",
        ),
    )
    core = str(chosen(numbers))
    a, b, c = numbers
    question = template.format(w=word, a=a, b=b, c=c)
    return Fact(question, f"The {word} number is {core}.", core, f"three {word} {numbers}")


def _yes_or_no(rng: random.Random) -> Fact:
    a, b = _two(rng)
    up = rng.random() < 0.5
    word = pick(rng, _BIGGER if up else _SMALLER)
    holds = a > b if up else a < b
    core = "Yes" if holds else "No"
    answer = f"Yes, {a} is {word} than {b}." if holds else f"No, {a} is not {word} than {b}."
    return Fact(f"Is {a} {word} than {b}?", answer, core, f"is {word} {a} {b}")


_SORT_UP = (
    "Sort these numbers: {l}",
    "Sort {l}.",
    "Sort these numbers from smallest to largest: {l}",
    "Put these numbers in order: {l}",
    "Sort in ascending order: {l}",
    "Order these numbers from low to high: {l}",
    "Please sort {l} in ascending order.",
)
_SORT_DOWN = (
    "Sort these numbers from largest to smallest: {l}",
    "Sort in descending order: {l}",
    "Order these numbers from high to low: {l}",
    "Please sort {l} in descending order.",
    "Put these numbers in descending order: {l}",
)
_SORT_WORDS = (
    "Sort these words alphabetically: {l}",
    "Put these words in alphabetical order: {l}",
    "Sort the words {l} alphabetically.",
    "Sort alphabetically: {l}",
    "Order these words from A to Z: {l}",
)


def sorting(rng: random.Random) -> Fact:
    """Draw a task of sorting three to six numbers, or three to five words."""
    if rng.random() < 0.3:
        words = _word_list(rng, 3, 5)
        listed, ordered = ", ".join(words), ", ".join(sorted(words))
        return Fact(
            pick(rng, _SORT_WORDS).format(l=listed), ordered + ".", ordered, f"sort {listed}"
        )
    numbers = rng.sample(range(100), rng.randint(3, 6))
    down = rng.random() < 0.4
    listed = ", ".join(map(str, numbers))
    ordered = ", ".join(map(str, sorted(numbers, reverse=down)))
    template = pick(rng, _SORT_DOWN if down else _SORT_UP)
    return Fact(template.format(l=listed), ordered + ".", ordered, f"sort {down} {listed}")
