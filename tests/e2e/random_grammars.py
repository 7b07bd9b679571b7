"""Random response formats with hostile sizes: most are refused, and the others may be slow."""

from __future__ import annotations

import json
from random import Random
from typing import Any

_WORDS = ("a", "k", "name", "yes", "Größe", "🙂", "<call>", "x-y", '"', "\\", "\n", "")
_HUGE = (10, 100, 1_000, 100_000, 10_000_000, 2**32, 10**30)


def random_format(seed: int) -> dict[str, Any]:
    """Return a `response_format` of any type, whose grammar may be invalid, circular or costly."""
    random = Random(seed)
    return random.choice((_json_schema, _json_schema, _regex_format, _lark_format, _tags))(random)


def _json_schema(random: Random) -> dict[str, Any]:
    schema = _schema(random, random.randint(0, 4))
    if random.random() < 0.8:
        schema["$defs"] = {name: _schema(random, 2) for name in ("node", "leaf")}
    return {"type": "json_schema", "json_schema": {"name": "random", "schema": schema}}


def _schema(random: Random, depth: int) -> dict[str, Any]:
    leaves = (_number, _string, _enum, _reference)
    kinds = leaves if depth <= 0 else (*leaves, _object, _array, _combination, _intersection)
    return random.choice(kinds)(random, depth - 1)


def _number(random: Random, _: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": random.choice(("integer", "number"))}
    if random.random() < 0.6:
        schema["multipleOf"] = random.choice(
            (random.randint(1, 10**8), random.randint(1, 10**4), 86_400_000, 999_999, 0.01, 1e300)
        )
    if random.random() < 0.4:
        schema["minimum"] = random.choice((-1, 1)) * random.choice(_HUGE)
    if random.random() < 0.4:
        schema["maximum"] = random.choice((-1, 1)) * random.choice(_HUGE)
    return schema


def _string(random: Random, _: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    if random.random() < 0.5:
        schema["pattern"] = _regex(random, 2)
    if random.random() < 0.3:
        schema["minLength"] = random.choice(_HUGE)
    if random.random() < 0.3:
        schema["maxLength"] = random.choice(_HUGE)
    if random.random() < 0.2:
        schema["format"] = random.choice(("email", "date-time", "ipv6", "uri", "unknown"))
    return schema


def _enum(random: Random, _: int) -> dict[str, Any]:
    if random.random() < 0.5:
        return {"const": random.choice(_WORDS) * random.choice((1, 100, 20_000))}

    return {"enum": [f"{random.choice(_WORDS)}{i}" for i in range(random.choice((1, 30, 2_000)))]}


def _reference(random: Random, _: int) -> dict[str, Any]:
    if random.random() < 0.1:
        return {"$ref": random.choice(("#/missing", "http://x"))}

    return {"$ref": random.choice(("#", "#/$defs/node", "#/$defs/leaf"))}


def _object(random: Random, depth: int) -> dict[str, Any]:
    count = random.choice((1, 2, 3, 300, 5_000))
    value = _schema(random, depth) if count < 10 else {"type": "integer"}
    properties = {f"{random.choice(_WORDS)}{i}": value for i in range(count)}
    names = list(properties)
    return {
        "type": random.choice(("object", ["object", "null"])),
        random.choice(("properties", "patternProperties")): properties,
        "required": names[: random.choice((0, 1, count))],
        "additionalProperties": random.choice((True, False, value)),
    }


def _array(random: Random, depth: int) -> dict[str, Any]:
    return {
        "type": "array",
        "items": _schema(random, depth),
        "minItems": random.choice((0, 1, *_HUGE)),
        "maxItems": random.choice(_HUGE),
    }


def _combination(random: Random, depth: int) -> dict[str, Any]:
    members = [_schema(random, depth) for _ in range(random.choice((1, 2, 5)))]
    return {random.choice(("anyOf", "oneOf", "allOf")): members}


def _intersection(random: Random, _: int) -> dict[str, Any]:
    count = random.choice((2, 8, 16, 18, 30))
    return {"allOf": [{"type": "string", "pattern": f".*{_letter(i)}.*"} for i in range(count)]}


def _letter(number: int) -> str:
    return f"{chr(97 + number % 26)}{number // 26}"


def _regex_format(random: Random) -> dict[str, Any]:
    return {"type": "grammar", "syntax": "regex", "definition": _regex(random, 4)}


def _regex(random: Random, depth: int) -> str:
    if depth == 0:
        leaves = ("x", "[a-z]", ".", r"\d", "é", "[^a]", "", r"\p{L}", "k", "[0-9a-f]{4}")
        return random.choice(leaves if random.random() < 0.98 else ("(", r"\b", "(?=a)"))

    inner = [_regex(random, depth - 1) for _ in range(random.choice((1, 2, 3, 30)))]
    match random.randrange(4):
        case 0:
            return "".join(inner)
        case 1:
            return f"({'|'.join(inner)})"
        case 2:
            return f"({inner[0]}){{{random.choice((0, 1, 3, *_HUGE[:5]))}}}"
        case _:
            return f"(.*{inner[0]})" + random.choice(("*", "+", "?", "{2,}", ""))


def _lark_format(random: Random) -> dict[str, Any]:
    names = [f"rule_{i}" for i in range(random.choice((0, 1, 3, 30)))]
    terminals = [f"T{i}" for i in range(random.choice((1, 3, 20)))]
    rules = [f"{name}: {_expression(random, [*names, *terminals])}" for name in ("start", *names)]
    rules += [
        f"{name}: {_terminal(random, terminals[i + 1 :])}" for i, name in enumerate(terminals)
    ]
    return {"type": "grammar", "syntax": "lark", "definition": "\n".join(rules)}


def _expression(random: Random, names: list[str]) -> str:
    items = [_item(random, names) for _ in range(random.choice((1, 2, 3, 20)))]
    return random.choice((" ", " | ")).join(items)


def _item(random: Random, names: list[str]) -> str:
    match random.randrange(6):
        case 0 | 1 | 2:
            return random.choice(names) + random.choice(("", "", "*", "+", "?"))
        case 3:
            return json.dumps(random.choice(_WORDS))
        case 4:
            return f'("x" {random.choice(names)}){{{random.choice((1, 5, *_HUGE[:4]))}}}'
        case _:
            return "%json " + json.dumps(_schema(random, 1))


def _terminal(random: Random, others: list[str]) -> str:
    parts = [f"/{_regex(random, 2).replace('/', '')}/" for _ in range(random.choice((1, 2, 18)))]
    parts += random.sample(others, min(len(others), 2))
    return random.choice(("~", "")) + random.choice((" ", " & ", " | ")).join(parts)


def _tags(random: Random) -> dict[str, Any]:
    count = random.choice((1, 3, 100, 1_000, 10_000))
    schema = _schema(random, random.randint(0, 2)) if count < 100 else {"type": "integer"}
    structures = [{"begin": f"<{i}>", "schema": schema, "end": f"</{i}>"} for i in range(count)]
    triggers = ["<"] if random.random() < 0.5 else [tag["begin"] for tag in structures]
    return {"type": "structural_tag", "structures": structures, "triggers": triggers}
