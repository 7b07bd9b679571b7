"""Extraction of a JSON object with the requested keys from a sentence."""

from __future__ import annotations

__all__ = ("constrained_extraction", "extraction")

import json
import random
from collections.abc import Callable
from dataclasses import replace

from training.dialogues.records import Fact
from training.dialogues.words import ANIMALS, COLORS, DAYS, ITEMS, PLURALS, anybody, pick, place

Fields = dict[str, str | int]

_REQUESTS = (
    "Extract {k} as JSON: {s}",
    "Extract {k} as JSON from: {s}",
    "Extract {k} as JSON from this text: {s}",
    "Extract {k}: {s}",
    "Extract {k} from: {s}",
    "Extract {k} from this sentence: {s}",
    "{s} Extract {k}.",
    "{s} Give me {k} as JSON.",
    "{s}\nExtract {k} as JSON.",
    "Return a JSON object with {k}. Text: {s}",
    "Turn this into JSON with the keys {k}: {s}",
    "From the text below, extract {k} as JSON.\n{s}",
    'Text: "{s}"\nWrite {k} as JSON.',
    "Read this: {s} Answer with JSON that has {k}.",
    "Find {k} in this text and answer as JSON: {s}",
    "Get {k} as JSON: {s}",
)
_WHOLE = (
    "Extract the {noun}: {s}",
    "Extract the {noun} as JSON: {s}",
    "Extract the {noun} from this sentence: {s}",
    "Extract all fields as JSON: {s}",
    "Extract the data: {s}",
    "Turn this into JSON: {s}",
    "Write this as JSON: {s}",
    "{s} Answer as JSON.",
)
_SYNONYMS = {
    "name": ("person", "who", "full_name", "first_name"),
    "city": ("town", "place", "location"),
    "age": ("years", "old"),
    "quantity": ("count", "number"),
    "price": ("cost",),
    "item": ("thing", "product"),
    "colour": ("color",),
    "job": ("work", "profession"),
}


def extraction(rng: random.Random) -> Fact:
    """Draw a request for some of a sentence's fields in any order, or for all of them."""
    noun, sentence, fields = _scene(rng)
    if rng.random() < 0.2:
        question = pick(rng, _WHOLE).format(noun=noun, s=sentence)
        return _fact(question, sentence, fields, tuple(fields))

    fields = _renamed(rng, fields) if rng.random() < 0.08 else fields
    keys = _some_keys(rng, fields)
    question = pick(rng, _REQUESTS).format(k=_listed(rng, keys), s=sentence)
    return _fact(question, sentence, fields, keys)


def constrained_extraction(rng: random.Random) -> Fact:
    """Draw a request whose keys and their order are given by a grammar and not by the prompt."""
    noun, sentence, fields = _scene(rng)
    fields = _renamed(rng, fields) if rng.random() < 0.25 else fields
    keys = _some_keys(rng, fields)
    template = pick(rng, (*_WHOLE, "{s}", "{s}"))
    fact = _fact(template.format(noun=noun, s=sentence), sentence, fields, keys)
    return replace(fact, values=tuple(str(fields[key]) for key in keys))


def _scene(rng: random.Random) -> tuple[str, str, Fields]:
    noun, scene = pick(rng, _SCENES)
    return (noun, *scene(rng))


def _some_keys(rng: random.Random, fields: Fields) -> tuple[str, ...]:
    keys = list(fields) if rng.random() < 0.4 else rng.sample(list(fields), len(fields))
    return tuple(keys[: rng.randint(1, len(keys))] if rng.random() < 0.5 else keys)


def _renamed(rng: random.Random, fields: Fields) -> Fields:
    renamed: Fields = {}
    for key, value in fields.items():
        synonym = pick(rng, _SYNONYMS.get(key, (key,)))
        renamed[key if synonym in renamed else synonym] = value
    return renamed


def _listed(rng: random.Random, keys: tuple[str, ...]) -> str:
    style = rng.random()
    if style < 0.3:
        shown = [f"the {key}" for key in keys]
    else:
        shown = [f'"{key}"' if 0.3 < style < 0.5 or rng.random() < 0.1 else key for key in keys]
    joint = " and " if rng.random() < 0.9 else ", "
    return shown[0] if len(shown) == 1 else ", ".join(shown[:-1]) + joint + shown[-1]


def _fact(question: str, sentence: str, fields: Fields, keys: tuple[str, ...]) -> Fact:
    answer = json.dumps({key: fields[key] for key in keys}, ensure_ascii=False)
    return Fact(question, answer, answer, f"{sentence}|{','.join(keys)}")


def _amount(rng: random.Random, digits: int) -> int:
    return rng.randint(1, 10 ** rng.randint(1, digits) - 1)


def _fill(rng: random.Random, templates: tuple[str, ...], fields: Fields) -> tuple[str, Fields]:
    template = pick(rng, templates)
    used = [key for key in fields if "{" + key + "}" in template]
    used.sort(key=lambda key: template.index("{" + key + "}"))
    return template.format(**fields), {key: fields[key] for key in used}


def _somebody(rng: random.Random) -> tuple[str, Fields]:
    return _fill(
        rng,
        (
            "{name} is {age} years old and lives in {city}.",
            "{name}, aged {age}, comes from {city}.",
            "My name is {name}, I am {age} and I live in {city}.",
            "{name} from {city} is {age} years old and likes {colour}.",
            "{name} lives in {city} and likes the colour {colour}.",
            "{name} is {age}.",
            "This is {name}, {age} years old, who works as a {job} in {city}.",
            "{name} works as a {job} and is {age} years old.",
            "I met {name} in {city}. She is a {job} and {age} years old.",
            "{name} is {age} years old.",
            "{name} is {age} years old and works as a {job}.",
            "{name} is a {age}-year-old {job} from {city}.",
            "{name} ({age}) lives in {city}.",
            "{name}, {age}, {city}",
            "Name: {name}, age: {age}",
            "In {city} there lives a {job} called {name}.",
        ),
        {
            "name": anybody(rng),
            "age": rng.randint(1, 99),
            "city": place(rng),
            "colour": pick(rng, COLORS),
            "job": pick(
                rng, ("teacher", "nurse", "baker", "doctor", "farmer", "pilot", "painter", "driver")
            ),
        },
    )


def _owner(rng: random.Random) -> tuple[str, Fields]:
    return _fill(
        rng,
        (
            "{name} has a {colour} {pet} called {pet_name}.",
            "{name} has a {pet}. The {pet} is {colour}.",
            "The {pet} of {name} is called {pet_name}.",
            "{name} lives in {city} with a {colour} {pet}.",
            "In {city}, {name} bought a {pet}.",
        ),
        {
            "name": anybody(rng),
            "pet": pick(rng, ANIMALS),
            "colour": pick(rng, COLORS),
            "pet_name": anybody(rng),
            "city": place(rng),
        },
    )


def _order(rng: random.Random) -> tuple[str, Fields]:
    return _fill(
        rng,
        (
            "{name} buys {quantity} {item} for {price} euros.",
            "{name} ordered {quantity} {item} on {day}.",
            "On {day}, {name} sold {quantity} {item} for {price} dollars.",
            "Please send {quantity} {item} to {name} in {city}.",
            "{quantity} {item} cost {price} euros.",
            "We need {quantity} {item} by {day}.",
            "{name} from {city} wants {quantity} {item}.",
            "{name} bought {quantity} {item}.",
            "{name} paid {price} euros for {quantity} {item}.",
        ),
        {
            "name": anybody(rng),
            "quantity": _amount(rng, 3),
            "item": pick(rng, PLURALS),
            "price": _amount(rng, 4),
            "day": pick(rng, DAYS),
            "city": place(rng),
        },
    )


def _thing(rng: random.Random) -> tuple[str, Fields]:
    return _fill(
        rng,
        (
            "The {colour} {item} costs {price} euros.",
            "A {colour} {item} for {price} dollars.",
            "{name} lost a {colour} {item} in {city}.",
            "{name} found a {colour} {item} on {day}.",
            "The {item} in room {room} is {colour}.",
            "{name} sells a {item} for {price} euros.",
        ),
        {
            "item": pick(rng, ITEMS),
            "colour": pick(rng, COLORS),
            "price": _amount(rng, 4),
            "name": anybody(rng),
            "city": place(rng),
            "day": pick(rng, DAYS),
            "room": _amount(rng, 3),
        },
    )


def _meeting(rng: random.Random) -> tuple[str, Fields]:
    return _fill(
        rng,
        (
            "{name} meets {friend} in {city} on {day}.",
            "On {day} at {hour} o'clock, {name} meets {friend}.",
            "{name} travels to {city} on {day}.",
            "The meeting with {name} is on {day} at {hour} in room {room}.",
            "{name} and {friend} go to {city}.",
        ),
        {
            "name": anybody(rng),
            "friend": anybody(rng),
            "city": place(rng),
            "day": pick(rng, DAYS),
            "hour": rng.randint(1, 12),
            "room": _amount(rng, 3),
        },
    )


_SCENES: tuple[tuple[str, Callable[[random.Random], tuple[str, Fields]]], ...] = (
    ("person", _somebody),
    ("person", _somebody),
    ("owner", _owner),
    ("order", _order),
    ("thing", _thing),
    ("meeting", _meeting),
)
