"""Conversion of unquoted argument values to the types that a JSON schema specifies."""

from __future__ import annotations

__all__ = (
    "ROOT_KEYWORDS",
    "Schema",
    "parse_value",
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

#: The keywords that the root of an argument schema may have for a grammar to enforce it.
ROOT_KEYWORDS = frozenset(
    (
        *("$defs", "$schema", "additionalProperties", "definitions", "description"),
        *("properties", "required", "strict", "title", "type"),
    )
)
# Chat templates render values as Python constants, which models then imitate.
_PYTHON_CONSTANTS = {"True": True, "False": False, "None": None}
_TYPE_NAMES = {str: "string", bool: "boolean", type(None): "null", dict: "object", list: "array"}
_MAX_DEPTH = 8  # The maximum depth of references, which may be circular.


def schema_of(parameters: Schema, name: str) -> Any:  # noqa: ANN401 - any JSON.
    """Return the schema of an argument, or an empty schema if there is none."""
    properties = parameters.get("properties")
    return properties.get(name, {}) if isinstance(properties, Mapping) else {}


def parse_value(text: str, schema: object, root: Schema) -> object:
    """Convert an unquoted value.

    If the schema allows a string, the value is the text itself, except that `null` stays null if
    the schema allows it. Otherwise the text is parsed as JSON; invalid JSON stays text.

    Args:
        text: The value as the model generated it.
        schema: The JSON schema of the value.
        root: The schema that references in `schema` are resolved against.
    """
    types = types_of(schema, root)
    if types is not None and "string" in types:
        return None if "null" in types and text.strip() in ("null", "None") else text

    stripped = text.strip()
    if stripped in _PYTHON_CONSTANTS:
        return _PYTHON_CONSTANTS[stripped]

    try:
        return json.loads(text, parse_constant=_reject, parse_float=_parse_finite)
    except (ValueError, RecursionError):
        return text


def types_of(schema: object, root: Schema, depth: int = 0) -> frozenset[str] | None:
    """Return the JSON types that a schema allows, or None if it does not restrict the type.

    Args:
        schema: A JSON schema.
        root: The schema that references are resolved against.
        depth: The number of references and alternatives followed so far.
    """
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
        return None

    match schema:
        case {"type": str() | list()} | {"enum": list()} | {"const": _}:
            return _declared_types(schema)
        case {"$ref": str(reference)}:
            return types_of(resolve(reference, root), root, depth + 1)
        case {"anyOf": [*choices]} | {"oneOf": [*choices]}:
            return _union([types_of(choice, root, depth + 1) for choice in choices])
        case {"allOf": [only]}:
            return types_of(only, root, depth + 1)
        case _:
            return None


def _declared_types(schema: Schema) -> frozenset[str]:
    names = schema.get("type")
    if isinstance(names, str):
        return frozenset([names])

    if isinstance(names, list):
        return frozenset(map(str, names))

    values = schema.get("enum", [schema.get("const")])
    return frozenset(_TYPE_NAMES.get(type(value), "number") for value in values)


def with_definitions(schema: object, root: Schema) -> Schema:
    """Return a subschema of `root` as a self-contained schema."""
    definitions = {name: root[name] for name in ("$defs", "definitions") if name in root}
    return {**definitions, **schema} if isinstance(schema, Mapping) else definitions


def _union(alternatives: list[frozenset[str] | None]) -> frozenset[str] | None:
    known = [types for types in alternatives if types is not None]
    return frozenset[str]().union(*known) if len(known) == len(alternatives) else None


def resolve(reference: str, root: Schema) -> object:
    """Return the subschema that a reference points to, or None if there is none."""
    target: object = root
    for key in reference.removeprefix("#/").split("/"):
        target = target.get(key) if isinstance(target, Mapping) else None

    return target


def _parse_finite(text: str) -> float:
    value = float(text)
    return value if isfinite(value) else _reject(text)


def _reject(constant: str) -> NoReturn:
    raise ValueError(constant)
