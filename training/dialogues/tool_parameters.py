"""The parameters and families of the offered functions."""

from __future__ import annotations

__all__ = (
    "ANIMAL",
    "CITY",
    "COLOR",
    "COUNT",
    "COUNTRY",
    "DAY",
    "DONE",
    "FIRST",
    "HOUR",
    "ITEM",
    "LANGUAGE",
    "LEVEL",
    "MINUTES",
    "NUMBER",
    "PERSON",
    "ROOM",
    "SECOND",
    "SIZE",
    "SWITCH",
    "TITLE",
    "UNIT",
    "WORD",
    "Family",
    "Parameter",
    "Value",
    "family",
    "large",
    "one_of",
    "small",
)

import random
from collections.abc import Callable
from dataclasses import dataclass

from training.dialogues.lists import phrases
from training.dialogues.words import (
    ANIMALS,
    COLORS,
    COUNTRIES,
    DAYS,
    ITEMS,
    invented_name,
    person,
    pick,
    place,
)

Value = str | int | float


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a function."""

    names: tuple[str, ...]  #: Possible names.
    type: str  #: The JSON type.
    description: str
    draw: Callable[[random.Random], Value]  #: Draws an argument.
    choices: tuple[str, ...] = ()  #: The enum, if any.


@dataclass(frozen=True, slots=True)
class Family:
    """A function in several variants. In strings, {0} and {1} are arguments and {r} the result."""

    verbs: tuple[str, ...]
    nouns: tuple[str, ...]
    descriptions: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    requests: tuple[str, ...]
    result: Callable[[random.Random], Value]
    result_names: tuple[str, ...]
    answer: str


def family(  # noqa: PLR0913 - a row of a table
    verbs: str,
    nouns: str,
    descriptions: str,
    parameters: tuple[Parameter, ...],
    requests: str,
    result: Callable[[random.Random], Value],
    result_names: str,
    answer: str,
) -> Family:
    """Return a family from strings with alternatives separated by `|`."""
    return Family(
        phrases(verbs),
        phrases(nouns),
        phrases(descriptions),
        parameters,
        phrases(requests),
        result,
        phrases(result_names),
        answer,
    )


def small(rng: random.Random) -> int:
    """Draw a number of one or two digits."""
    return rng.randint(1, 99)


def large(rng: random.Random) -> int:
    """Draw a number of up to three digits."""
    return rng.randint(2, 999)


def one_of(*choices: str) -> Callable[[random.Random], Value]:
    """Return a function that draws one of `choices`."""
    return lambda rng: pick(rng, choices)


def _country(rng: random.Random) -> str:
    return pick(rng, COUNTRIES).removeprefix("the ")


CITY = Parameter(("city", "location", "place", "town"), "string", "The name of the city", place)
PERSON = Parameter(("name", "person", "who", "contact"), "string", "The name of the person", person)
ITEM = Parameter(
    ("item", "product", "article", "thing"), "string", "The item", lambda r: pick(r, ITEMS)
)
DAY = Parameter(
    ("day", "weekday", "date"), "string", "The day of the week", lambda r: pick(r, DAYS)
)
COUNT = Parameter(("count", "quantity", "amount", "number"), "integer", "How many", small)
MINUTES = Parameter(("minutes", "duration", "time"), "integer", "Time in minutes", small)
COLOR = Parameter(("colour", "color", "shade"), "string", "The colour", lambda r: pick(r, COLORS))
ROOM = Parameter(
    ("room", "place", "area"),
    "string",
    "The room",
    one_of("kitchen", "bedroom", "bathroom", "office", "garden", "hall", "cellar", "garage"),
)
UNIT = Parameter(
    ("unit", "units", "scale"),
    "string",
    "The unit",
    one_of("celsius", "fahrenheit"),
    ("celsius", "fahrenheit"),
)
WORD = Parameter(("word", "text", "term"), "string", "The word", lambda r: invented_name(r).lower())
LANGUAGE = Parameter(
    ("language", "target", "to"),
    "string",
    "The language",
    one_of("French", "German", "Spanish", "Italian", "Dutch", "Polish", "Danish", "Greek"),
)
COUNTRY = Parameter(("country", "nation", "state"), "string", "The country", _country)
FIRST = Parameter(("a", "x", "first", "left"), "number", "The first number", large)
SECOND = Parameter(("b", "y", "second", "right"), "number", "The second number", large)
TITLE = Parameter(
    ("title", "song", "query", "track"),
    "string",
    "The title",
    lambda r: f"{pick(r, COLORS).capitalize()} {pick(r, ITEMS).capitalize()}",
)
LEVEL = Parameter(("level", "value", "percent"), "integer", "From 1 to 100", small)
SWITCH = Parameter(
    ("state", "mode", "status"), "string", "On or off", one_of("on", "off"), ("on", "off")
)
HOUR = Parameter(("hour", "time", "at"), "integer", "The hour", lambda r: r.randint(1, 23))
NUMBER = Parameter(
    ("id", "code", "reference", "key"), "integer", "The number", lambda r: r.randint(10, 9999)
)
ANIMAL = Parameter(
    ("animal", "species", "pet"), "string", "The kind of animal", lambda r: pick(r, ANIMALS)
)
SIZE = Parameter(
    ("size", "format"),
    "string",
    "The size",
    one_of("small", "medium", "large"),
    ("small", "medium", "large"),
)
DONE = one_of("ok", "done")
