"""Extraction of a JSON object with the requested keys from a sentence."""

from __future__ import annotations

__all__ = ("extraction",)

import json
import random
from collections.abc import Callable

from training.dialogues.records import Fact
from training.dialogues.words import ANIMALS, COLORS, DAYS, ITEMS, PLURALS, person, pick, place

Fields = dict[str, str | int]

_REQUESTS = (
    "Extract {k} as JSON: {s}",
    "Extract {k} as JSON from this text: {s}",
    "{s} Give me {k} as JSON.",
    "{s}\nExtract {k} as JSON.",
    "Return a JSON object with {k}. Text: {s}",
    "Turn this into JSON with the keys {k}: {s}",
    "From the text below, extract {k} as JSON.\n{s}",
    'Text: "{s}"\nWrite {k} as JSON.',
    "Read this: {s} Answer with JSON that has {k}.",
)


def extraction(rng: random.Random) -> Fact:
    """Draw a request for some of a sentence's fields, in any order."""
    sentence, fields = pick(rng, _SCENES)(rng)
    keys = list(fields)
    rng.shuffle(keys)
    keys = keys[: rng.randint(1, len(keys))] if rng.random() < 0.5 else keys
    quoted = [f'"{key}"' if rng.random() < 0.3 else key for key in keys]
    listed = quoted[0] if len(quoted) == 1 else ", ".join(quoted[:-1]) + " and " + quoted[-1]
    answer = json.dumps({key: fields[key] for key in keys}, ensure_ascii=False)
    question = pick(rng, _REQUESTS).format(k=listed, s=sentence)
    return Fact(question, answer, answer, f"{sentence}|{','.join(keys)}")


def _fill(rng: random.Random, templates: tuple[str, ...], fields: Fields) -> tuple[str, Fields]:
    template = pick(rng, templates)
    used = {key: value for key, value in fields.items() if "{" + key + "}" in template}
    return template.format(**fields), used


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
        ),
        {
            "name": person(rng),
            "age": rng.randint(2, 98),
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
            "name": person(rng),
            "pet": pick(rng, ANIMALS),
            "colour": pick(rng, COLORS),
            "pet_name": person(rng),
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
        ),
        {
            "name": person(rng),
            "quantity": rng.randint(2, 99),
            "item": pick(rng, PLURALS),
            "price": rng.randint(2, 999),
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
        ),
        {
            "item": pick(rng, ITEMS),
            "colour": pick(rng, COLORS),
            "price": rng.randint(2, 999),
            "name": person(rng),
            "city": place(rng),
            "day": pick(rng, DAYS),
            "room": rng.randint(1, 400),
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
            "name": person(rng),
            "friend": person(rng),
            "city": place(rng),
            "day": pick(rng, DAYS),
            "hour": rng.randint(1, 12),
            "room": rng.randint(1, 400),
        },
    )


_SCENES: tuple[Callable[[random.Random], tuple[str, Fields]], ...] = (
    _somebody,
    _somebody,
    _owner,
    _order,
    _thing,
    _meeting,
)
