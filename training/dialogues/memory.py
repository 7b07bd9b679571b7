"""Facts that the user states and asks for later."""

from __future__ import annotations

__all__ = ("Remembered", "copying", "draw_facts", "repeating")

import random
from collections.abc import Callable
from dataclasses import dataclass

from training.dialogues.records import Fact
from training.dialogues.words import (
    ANIMALS,
    COLORS,
    COMMON_WORDS,
    ITEMS,
    invented_name,
    person,
    pick,
    place,
    random_letters,
)


@dataclass(frozen=True, slots=True)
class Remembered:
    """A fact that the user states, and a question for it."""

    kind: str
    value: str
    statement: str
    confirmation: str
    question: str
    answer: str


@dataclass(frozen=True, slots=True)
class _Kind:
    name: str
    draw: Callable[[random.Random], str]
    statements: tuple[str, ...]
    confirmation: str
    questions: tuple[str, ...]
    answer: str


def _number(rng: random.Random) -> str:
    return str(rng.randint(10, 9999) if rng.random() < 0.5 else rng.randint(2, 99))


def _food(rng: random.Random) -> str:
    return pick(
        rng, ("pizza", "soup", "rice", "pasta", "bread", "cake", "cheese", "salad", "fish", "curry")
    )


def _work(rng: random.Random) -> str:
    return pick(
        rng,
        (
            "teacher",
            "nurse",
            "baker",
            "doctor",
            "farmer",
            "pilot",
            "painter",
            "driver",
            "cook",
            "gardener",
        ),
    )


_KINDS = (
    _Kind(
        "name",
        person,
        (
            "My name is {v}.",
            "I am called {v}.",
            "I'm {v}, by the way.",
            "Remember that my name is {v}.",
        ),
        "Nice to meet you, {v}!",
        (
            "What is my name?",
            "What's my name?",
            "Do you remember my name?",
            "Who am I?",
            "Can you tell me my name?",
        ),
        "Your name is {v}.",
    ),
    _Kind(
        "number",
        _number,
        (
            "My number is {v}.",
            "Remember the number {v}.",
            "My lucky number is {v}.",
            "Please remember this number: {v}",
            "Keep the number {v} in mind.",
        ),
        "I will remember the number {v}.",
        (
            "What is my number?",
            "What was the number?",
            "Which number did I tell you?",
            "Do you remember the number?",
        ),
        "The number is {v}.",
    ),
    _Kind(
        "colour",
        lambda rng: pick(rng, COLORS),
        ("My favourite colour is {v}.", "I like the colour {v} best.", "My favorite color is {v}."),
        "Your favourite colour is {v}. I will remember that.",
        (
            "What is my favourite colour?",
            "Which colour do I like best?",
            "What's my favorite color?",
        ),
        "Your favourite colour is {v}.",
    ),
    _Kind(
        "city",
        place,
        ("I live in {v}.", "My home is in {v}.", "I come from {v}."),
        "{v} sounds nice. I will remember that.",
        ("Where do I live?", "Which city do I live in?", "Where is my home?"),
        "You live in {v}.",
    ),
    _Kind(
        "pet",
        lambda rng: f"{pick(rng, ANIMALS)} called {person(rng)}",
        ("I have a {v}.", "My pet is a {v}.", "At home I have a {v}."),
        "You have a {v}. I will remember that.",
        ("What pet do I have?", "Which pet do I have?", "What is my pet?"),
        "You have a {v}.",
    ),
    _Kind(
        "friend",
        person,
        ("My best friend is {v}.", "My friend is called {v}.", "I have a friend called {v}."),
        "Your friend is {v}. I will remember that.",
        ("What is my friend called?", "Who is my friend?", "What is the name of my friend?"),
        "Your friend is {v}.",
    ),
    _Kind(
        "age",
        lambda rng: str(rng.randint(5, 98)),
        ("I am {v} years old.", "My age is {v}.", "I'm {v} years old."),
        "You are {v} years old. I will remember that.",
        ("How old am I?", "What is my age?", "Do you remember how old I am?"),
        "You are {v} years old.",
    ),
    _Kind(
        "food",
        _food,
        ("My favourite food is {v}.", "I like {v} most of all.", "The food I like best is {v}."),
        "Your favourite food is {v}. I will remember that.",
        ("What is my favourite food?", "Which food do I like best?", "What food do I like?"),
        "Your favourite food is {v}.",
    ),
    _Kind(
        "work",
        _work,
        ("I work as a {v}.", "My job is {v}.", "I am a {v}."),
        "You work as a {v}. I will remember that.",
        ("What is my job?", "What do I work as?", "What do I do for work?"),
        "You work as a {v}.",
    ),
    _Kind(
        "code",
        lambda rng: invented_name(rng).lower(),
        ("The password is {v}.", "The secret word is {v}.", "Remember the word {v}."),
        "I will remember the word {v}.",
        ("What is the password?", "What is the secret word?", "Which word did I tell you?"),
        "The word is {v}.",
    ),
    _Kind(
        "bag",
        lambda rng: pick(rng, ITEMS),
        ("In my bag there is a {v}.", "I put a {v} in my bag.", "I have a {v} in my bag."),
        "There is a {v} in your bag. I will remember that.",
        ("What is in my bag?", "What did I put in my bag?", "What do I have in my bag?"),
        "There is a {v} in your bag.",
    ),
)


def draw_facts(rng: random.Random, count: int) -> list[Remembered]:
    """Draw `count` facts of different kinds."""
    drawn = []
    for kind in rng.sample(_KINDS, count):
        value = kind.draw(rng)
        drawn.append(
            Remembered(
                kind.name,
                value,
                pick(rng, kind.statements).format(v=value),
                kind.confirmation.format(v=value),
                pick(rng, kind.questions),
                kind.answer.format(v=value),
            )
        )
    return drawn


_REPEAT = (
    "Repeat after me: {x}",
    "Repeat: {x}",
    "Say: {x}",
    "Echo: {x}",
    "Repeat these words: {x}",
    "Say this again: {x}",
    "Please repeat: {x}",
    "Write exactly this: {x}",
)


def repeating(rng: random.Random) -> Fact:
    """Draw a request to repeat some words: pure copying, which most other skills need."""
    makers = (person, place, _number, _common_word, _common_word, _invented_word)
    words = [pick(rng, makers)(rng) for _ in range(rng.randint(1, 8))]
    text = pick(rng, (" ", " ", ", ")).join(words)
    return Fact(pick(rng, _REPEAT).format(x=text), text, text, text)


def copying(rng: random.Random) -> Fact:
    """Draw a request to repeat words that nobody has seen, so that rare tokens are learned too."""
    words = [random_letters(rng) for _ in range(rng.randint(3, 8))]
    text = " ".join(word if rng.random() < 0.8 else word.lower() for word in words)
    return Fact(pick(rng, _REPEAT).format(x=text), text, text, text)


def _common_word(rng: random.Random) -> str:
    return pick(rng, COMMON_WORDS)


def _invented_word(rng: random.Random) -> str:
    return invented_name(rng).lower()
