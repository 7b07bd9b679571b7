"""Functions that the user offers, and calls of the model."""

from __future__ import annotations

__all__ = ("ToolCase", "draw_tool_case", "fits", "offer")

import json
import random
import re
from dataclasses import dataclass

from training.dialogues.records import JsonObject
from training.dialogues.tool_families_daily import DAILY_FAMILIES
from training.dialogues.tool_families_travel import TRAVEL_FAMILIES
from training.dialogues.tool_parameters import Family, Value
from training.dialogues.words import pick

_FAMILIES = DAILY_FAMILIES + TRAVEL_FAMILIES


@dataclass(frozen=True, slots=True)
class ToolCase:
    """One function, a request that needs it, the right call, its result and the answer."""

    family: Family
    tool: JsonObject
    request: str
    arguments: dict[str, Value]
    result: str
    answer: str

    @property
    def name(self) -> str:
        """The function's name."""
        return str(self.tool["function"]["name"])


def draw_tool_case(rng: random.Random) -> ToolCase:
    """Draw a function under a random name, with a request for it."""
    family = pick(rng, _FAMILIES)
    names: list[str] = []
    for parameter in family.parameters:
        names.append(pick(rng, [name for name in parameter.names if name not in names]))
    tool = _declare(rng, family, names)
    values = [parameter.draw(rng) for parameter in family.parameters]
    result = family.result(rng)
    document: dict[str, Value] = {pick(rng, family.result_names): result}
    return ToolCase(
        family,
        tool,
        pick(rng, family.requests).format(*values),
        dict(zip(names, values, strict=True)),
        json.dumps(document) if rng.random() < 0.75 else str(result),
        family.answer.format(*values, r=result),
    )


def _name(rng: random.Random, family: Family) -> str:
    verb, noun = pick(rng, family.verbs), pick(rng, family.nouns)
    style = rng.random()
    if style < 0.7:
        return f"{verb}_{noun}"
    if style < 0.85:
        return noun
    words = f"{verb}_{noun}".split("_")
    return words[0] + "".join(word.capitalize() for word in words[1:])


def _declare(rng: random.Random, family: Family, names: list[str]) -> JsonObject:
    omits_descriptions = rng.random() < 0.3
    properties: JsonObject = {}
    for parameter, name in zip(family.parameters, names, strict=True):
        schema: JsonObject = {"type": parameter.type}
        if parameter.choices:
            schema["enum"] = list(parameter.choices)
        if not omits_descriptions:
            schema["description"] = parameter.description
        properties[name] = schema
    function: JsonObject = {"name": _name(rng, family)}
    if rng.random() < 0.9:
        function["description"] = pick(rng, family.descriptions)
    function["parameters"] = {"type": "object", "properties": properties}
    if rng.random() < 0.85:
        function["parameters"]["required"] = names
    return {"type": "function", "function": function}


def offer(rng: random.Random, needed: list[ToolCase], total: int) -> tuple[JsonObject, ...]:
    """Return the needed functions mixed with others, `total` in all, no two of which do the same.

    The needed ones must fit together.
    """
    cases = list(needed)
    while len(cases) < total:
        case = draw_tool_case(rng)
        if fits(case, cases):
            cases.append(case)
    mixed = [case.tool for case in cases]
    rng.shuffle(mixed)
    return tuple(mixed)


def fits(case: ToolCase, others: list[ToolCase]) -> bool:
    """Return whether only one of the functions could answer each request."""
    words = _words(case)
    return all(
        case.family is not other.family
        and case.name != other.name
        and words.isdisjoint(_words(other))
        for other in others
    )


def _words(case: ToolCase) -> frozenset[str]:
    """Return the words that identify a function; functions that share one could fit one request."""
    function = case.tool["function"]
    named = re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", function["name"]).lower().split()
    described = str(function.get("description", "")).lower().strip(".").split()
    return frozenset(word for word in (*named, *described) if len(word) > 4)
