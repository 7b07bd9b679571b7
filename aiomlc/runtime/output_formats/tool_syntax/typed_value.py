"""Values that a model writes as bare text, as what a schema says they are."""

from __future__ import annotations

__all__ = (
    "ROOT_KEYWORDS",
    "Schema",
    "read_value",
    "resolve",
    "schema_of",
    "types_of",
    "with_definitions",
)

import json
from collections.abc import Mapping
from math import isfinite
from typing import Any, NoReturn

Schema = Mapping[str, Any]

#: What the schema of a function's arguments says besides or about its properties.
ROOT_KEYWORDS = frozenset(
    (
        *("$defs", "$schema", "additionalProperties", "definitions", "description"),
        *("properties", "required", "strict", "title", "type"),
    )
)
# Templates write the values of Python, and models repeat them.
_WORDS = {"True": True, "False": False, "None": None}
_NAMES = {str: "string", bool: "boolean", type(None): "null", dict: "object", list: "array"}
_MAX_DEPTH = 8  # Of references, which may be circular.


def schema_of(parameters: Schema, name: str) -> Any:  # noqa: ANN401 - any JSON.
    """The schema of an argument; an empty one where there is none."""
    properties = parameters.get("properties")
    return properties.get(name, {}) if isinstance(properties, Mapping) else {}


def read_value(text: str, schema: object, root: Schema) -> object:
    """A value that is written as bare text.

    A string is the text itself; anything else is JSON, and the text where it is not.

    Args:
        root: What references in `schema` refer to.
    """
    types = types_of(schema, root)
    if types is not None and "string" in types:
        return None if "null" in types and text.strip() in ("null", "None") else text

    word = text.strip()
    if word in _WORDS:
        return _WORDS[word]

    try:
        return json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError):
        return text


def types_of(schema: object, root: Schema, depth: int = 0) -> frozenset[str] | None:
    """The names of the types that a schema allows; None if it does not say."""
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
        return None

    match schema:
        case {"type": str() | list()} | {"enum": list()} | {"const": _}:
            return _own_types(schema)
        case {"$ref": str(reference)}:
            return types_of(resolve(reference, root), root, depth + 1)
        case {"anyOf": [*choices]} | {"oneOf": [*choices]}:
            return _union([types_of(choice, root, depth + 1) for choice in choices])
        case {"allOf": [only]}:
            return types_of(only, root, depth + 1)
        case _:
            return None


def _own_types(schema: Schema) -> frozenset[str]:
    names = schema.get("type")
    if isinstance(names, str):
        return frozenset([names])

    if isinstance(names, list):
        return frozenset(map(str, names))

    values = schema.get("enum", [schema.get("const")])
    return frozenset(_NAMES.get(type(value), "number") for value in values)


def with_definitions(schema: object, root: Schema) -> Schema:
    """The schema of a part of `root` as one of its own."""
    definitions = {name: root[name] for name in ("$defs", "definitions") if name in root}
    return {**definitions, **schema} if isinstance(schema, Mapping) else definitions


def _union(parts: list[frozenset[str] | None]) -> frozenset[str] | None:
    known = [part for part in parts if part is not None]
    return frozenset[str]().union(*known) if len(known) == len(parts) else None


def resolve(reference: str, root: Schema) -> object:
    """What a reference within a schema refers to; None if to nothing."""
    target: object = root
    for key in reference.removeprefix("#/").split("/"):
        target = target.get(key) if isinstance(target, Mapping) else None

    return target


def _finite(text: str) -> float:
    value = float(text)
    return value if isfinite(value) else _refuse(text)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)
