"""The facts that the model knows: days, months, capitals, colors, opposites."""

from __future__ import annotations

__all__ = ("calendar", "facts")

import random

from training.dialogues.lists import words_of
from training.dialogues.records import Fact
from training.dialogues.words import (
    CAPITALS,
    COUNTRIES,
    DAYS,
    MONTHS,
    NUMBER_WORDS,
    OPPOSITES,
    SEASONS,
    THING_COLORS,
    pick,
)

_LENGTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_ORDINALS = words_of(
    "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth"
)
_SEASON_OF = {month: season for season, months in SEASONS.items() for month in months}


def calendar(rng: random.Random) -> Fact:
    """Draw a question about days of the week, months or seasons."""
    return pick(rng, (_next_day, _days_away, _days_away, _next_month, _months_away, _month_fact))(
        rng
    )


_NEXT = (
    ("What day comes after {x}?", 1),
    ("Which day comes after {x}?", 1),
    ("What is the day after {x}?", 1),
    ("Which day follows {x}?", 1),
    ("What comes after {x}?", 1),
    ("What day comes before {x}?", -1),
    ("Which day comes before {x}?", -1),
    ("What is the day before {x}?", -1),
    ("What comes before {x}?", -1),
)


def _next_day(rng: random.Random) -> Fact:
    index = rng.randrange(7)
    if rng.random() < 0.4:
        return _today(rng, index)
    template, side = pick(rng, _NEXT)
    core = DAYS[(index + side) % 7]
    word = "after" if side > 0 else "before"
    answer = f"{core} comes {word} {DAYS[index]}."
    return Fact(template.format(x=DAYS[index]), answer, core, f"{template}{index}")


def _today(rng: random.Random, index: int) -> Fact:
    template, prefix, side = pick(
        rng,
        (
            ("Today is {x}. What day is tomorrow?", "Tomorrow is", 1),
            ("If today is {x}, what day is tomorrow?", "Tomorrow is", 1),
            ("It is {x} today. What day is it tomorrow?", "Tomorrow is", 1),
            ("Today is {x}. What day was yesterday?", "Yesterday was", -1),
            ("If today is {x}, what day was yesterday?", "Yesterday was", -1),
            ("It is {x} today. What day was it yesterday?", "Yesterday was", -1),
        ),
    )
    core = DAYS[(index + side) % 7]
    return Fact(template.format(x=DAYS[index]), f"{prefix} {core}.", core, f"{template}{index}")


def _days_away(rng: random.Random) -> Fact:
    index, count = rng.randrange(7), rng.randint(2, 10)
    number = NUMBER_WORDS[count] if rng.random() < 0.4 else str(count)
    template, word, side = pick(
        rng,
        (
            ("What day is {k} days after {x}?", "after", 1),
            ("Which day is {k} days after {x}?", "after", 1),
            ("Today is {x}. What day is it in {k} days?", "after", 1),
            ("If today is {x}, what day is it in {k} days?", "after", 1),
            ("What day is {k} days before {x}?", "before", -1),
            ("Which day is {k} days before {x}?", "before", -1),
            ("Today is {x}. What day was it {k} days ago?", "before", -1),
        ),
    )
    core = DAYS[(index + side * count) % 7]
    answer = f"{count} days {word} {DAYS[index]} is {core}."
    return Fact(
        template.format(x=DAYS[index], k=number),
        answer,
        core,
        f"{template}{index} {number}",
    )


def _next_month(rng: random.Random) -> Fact:
    index = rng.randrange(12)
    template, side = pick(
        rng,
        (
            ("What month comes after {x}?", 1),
            ("Which month comes after {x}?", 1),
            ("What is the month after {x}?", 1),
            ("Which month follows {x}?", 1),
            ("What month comes before {x}?", -1),
            ("Which month comes before {x}?", -1),
            ("What is the month before {x}?", -1),
        ),
    )
    core = MONTHS[(index + side) % 12]
    word = "after" if side > 0 else "before"
    answer = f"{core} comes {word} {MONTHS[index]}."
    return Fact(template.format(x=MONTHS[index]), answer, core, f"{template}{index}")


def _months_away(rng: random.Random) -> Fact:
    index, count = rng.randrange(12), rng.randint(2, 6)
    number = NUMBER_WORDS[count] if rng.random() < 0.4 else str(count)
    template, word, side = pick(
        rng,
        (
            ("What month is {k} months after {x}?", "after", 1),
            ("Which month is {k} months after {x}?", "after", 1),
            ("What month is {k} months before {x}?", "before", -1),
            ("Which month is {k} months before {x}?", "before", -1),
        ),
    )
    core = MONTHS[(index + side * count) % 12]
    answer = f"{count} months {word} {MONTHS[index]} is {core}."
    return Fact(
        template.format(x=MONTHS[index], k=number),
        answer,
        core,
        f"{template}{index} {number}",
    )


def _month_fact(rng: random.Random) -> Fact:
    index = rng.randrange(12)
    month, season = MONTHS[index], _SEASON_OF[MONTHS[index]]
    ordinal, days = _ORDINALS[index], _LENGTHS[index]
    template, answer, core = pick(
        rng,
        (
            ("How many days are in {x}?", f"{month} has {days} days.", str(days)),
            ("How many days does {x} have?", f"{month} has {days} days.", str(days)),
            ("How many days has {x}?", f"{month} has {days} days.", str(days)),
            ("In which season is {x}?", f"{month} is in {season}.", season),
            ("What season is {x} in?", f"{month} is in {season}.", season),
            ("Which season does {x} belong to?", f"{month} is in {season}.", season),
            (
                "What number is the month {x}?",
                f"{month} is month number {index + 1}.",
                str(index + 1),
            ),
            (
                "Which number has the month {x}?",
                f"{month} is month number {index + 1}.",
                str(index + 1),
            ),
            (f"What is the {ordinal} month?", f"The {ordinal} month is {month}.", month),
            (f"Which month is the {ordinal}?", f"The {ordinal} month is {month}.", month),
            (f"Name the {ordinal} month of the year.", f"The {ordinal} month is {month}.", month),
            (
                f"What is the {ordinal} month of the year?",
                f"The {ordinal} month is {month}.",
                month,
            ),
        ),
    )
    return Fact(template.format(x=month), answer, core, f"{template}{index}")


_CAPITAL = (
    "What is the capital of {x}?",
    "What's the capital of {x}?",
    "Which city is the capital of {x}?",
    "Name the capital of {x}.",
    "Tell me the capital of {x}.",
    "Do you know the capital of {x}?",
    "Capital of {x}?",
    "What is the capital city of {x}?",
    "Can you tell me the capital of {x}?",
    "I forgot the capital of {x}. What is it?",
)
_COUNTRY = (
    "{x} is the capital of which country?",
    "Which country has the capital {x}?",
    "Of which country is {x} the capital?",
    "Which country's capital is {x}?",
)
_COLOR = (
    "What colour is {x}?",
    "What color is {x}?",
    "Tell me the colour of {x}.",
    "What is the colour of {x}?",
    "Which colour is {x}?",
    "Which colour does {x} have?",
    "Do you know what colour {x} is?",
)
_OPPOSITE = (
    "What is the opposite of {x}?",
    "What's the opposite of {x}?",
    "Tell me the opposite of {x}.",
    "Give me the opposite of {x}.",
    "Name the opposite of {x}.",
    "Opposite of {x}?",
    'What is the opposite of "{x}"?',
    "Which word is the opposite of {x}?",
    "Do you know the opposite of {x}?",
)


def facts(rng: random.Random) -> Fact:
    """Draw a question for a capital, a color or an opposite, or for two of a kind."""
    kinds = (
        _capital,
        _capital,
        _country,
        _color,
        _opposite,
        _two_capitals,
        _two_opposites,
        _two_colors,
    )
    return pick(rng, kinds)(rng)


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]


def _capital(rng: random.Random) -> Fact:
    country, template = pick(rng, COUNTRIES), pick(rng, _CAPITAL)
    core = CAPITALS[country]
    answer = f"The capital of {country} is {core}."
    return Fact(template.format(x=country), answer, core, template + country)


def _country(rng: random.Random) -> Fact:
    country, template = pick(rng, COUNTRIES), pick(rng, _COUNTRY)
    city = CAPITALS[country]
    answer = f"{city} is the capital of {country}."
    return Fact(template.format(x=city), answer, _sentence(country), template + country)


def _color(rng: random.Random) -> Fact:
    thing, template = pick(rng, tuple(THING_COLORS)), pick(rng, _COLOR)
    core = THING_COLORS[thing]
    return Fact(template.format(x=thing), f"{_sentence(thing)} is {core}.", core, template + thing)


def _opposite(rng: random.Random) -> Fact:
    word, template = pick(rng, tuple(OPPOSITES)), pick(rng, _OPPOSITE)
    core = OPPOSITES[word]
    return Fact(
        template.format(x=word), f"The opposite of {word} is {core}.", core, template + word
    )


def _pair(rng: random.Random, table: dict[str, str]) -> tuple[str, str]:
    first, second = rng.sample(list(table), 2)
    return first, second


def _two_capitals(rng: random.Random) -> Fact:
    a, b = _pair(rng, CAPITALS)
    template = pick(
        rng,
        (
            "What are the capitals of {a} and {b}?",
            "Name the capitals of {a} and {b}.",
            "Tell me the capitals of {a} and {b}.",
        ),
    )
    answer = f"The capital of {a} is {CAPITALS[a]}, and the capital of {b} is {CAPITALS[b]}."
    core = f"{CAPITALS[a]} and {CAPITALS[b]}"
    return Fact(template.format(a=a, b=b), answer, core, f"capitals {a} {b}")


def _two_opposites(rng: random.Random) -> Fact:
    a, b = _pair(rng, OPPOSITES)
    template = pick(
        rng,
        ("What are the opposites of {a} and {b}?", "Give me the opposites of {a} and {b}."),
    )
    answer = f"The opposite of {a} is {OPPOSITES[a]}, and the opposite of {b} is {OPPOSITES[b]}."
    core = f"{OPPOSITES[a]} and {OPPOSITES[b]}"
    return Fact(template.format(a=a, b=b), answer, core, f"opposites {a} {b}")


def _two_colors(rng: random.Random) -> Fact:
    a, b = _pair(rng, THING_COLORS)
    template = pick(rng, ("What colour are {a} and {b}?", "Which colours do {a} and {b} have?"))
    answer = f"{_sentence(a)} is {THING_COLORS[a]}, and {b} is {THING_COLORS[b]}."
    core = f"{THING_COLORS[a]} and {THING_COLORS[b]}"
    return Fact(template.format(a=a, b=b), answer, core, f"colours {a} {b}")
