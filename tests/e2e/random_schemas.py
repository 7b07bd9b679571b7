"""Random supported JSON schemas, whose documents have at most a few hundred tokens."""

from __future__ import annotations

from random import Random
from typing import Any

_NAMES = ("name", "age", "city", "tags", "is_open", "Größe", "x-y", "a b", "price", "kind")
_PATTERNS = ("[a-z]{1,8}", "[A-Z]{3}-[0-9]{2,4}", "(yes|no|maybe)", "\\d{4}-\\d{2}-\\d{2}")


def random_schema(seed: int) -> dict[str, Any]:
    """Return the schema of an object with one to four properties, nested at most twice."""
    return _object(Random(seed), depth=2)


def _object(random: Random, depth: int) -> dict[str, Any]:
    names = random.sample(_NAMES, random.randint(1, 4))
    return {
        "type": "object",
        "properties": {name: _value(random, depth) for name in names},
        "required": [name for name in names if random.random() < 0.7],
        "additionalProperties": False,
    }


def _value(random: Random, depth: int) -> dict[str, Any]:
    simple = (_string, _integer, _number, _boolean, _enum, _pattern, _either)
    nested = (_array, _object)
    kind = random.choice(simple if depth == 0 else simple + nested)
    return kind(random, depth - 1)


def _string(random: Random, _: int) -> dict[str, Any]:
    return {"type": "string", "maxLength": random.randint(1, 30)}


def _integer(random: Random, _: int) -> dict[str, Any]:
    low = random.randint(-100, 100)
    return {"type": "integer", "minimum": low, "maximum": low + random.randint(0, 1000)}


def _number(random: Random, _: int) -> dict[str, Any]:
    # Without `multipleOf`, the model would generate endless fractional digits.
    return {"type": "number", "minimum": 0, "maximum": random.randint(1, 100), "multipleOf": 0.25}


def _boolean(_: Random, __: int) -> dict[str, Any]:
    return {"type": "boolean"}


def _enum(random: Random, _: int) -> dict[str, Any]:
    return {"enum": random.sample(["red", "grün", 1, 2.5, None, True, [1], {"a": "b"}], 3)}


def _pattern(random: Random, _: int) -> dict[str, Any]:
    return {"type": "string", "pattern": f"^{random.choice(_PATTERNS)}$"}


def _either(random: Random, _: int) -> dict[str, Any]:
    return {"anyOf": [_integer(random, 0), _string(random, 0), {"type": "null"}]}


def _array(random: Random, depth: int) -> dict[str, Any]:
    return {
        "type": "array",
        "items": _value(random, max(depth, 0)),
        "minItems": random.randint(0, 1),
        "maxItems": random.randint(1, 4),
    }
