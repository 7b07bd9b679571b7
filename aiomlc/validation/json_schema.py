"""A check of JSON schemas against the meta-schema of draft 2020-12, for the keywords in use."""

from __future__ import annotations

__all__ = ("check_json_schema",)

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from aiomlc.validation.json_values import safe_repr

_TYPES: Final = ("array", "boolean", "integer", "null", "number", "object", "string")
_TYPE: Final = f"one of {', '.join(map(repr, _TYPES))}, or a list of them"


def check_json_schema(schema: Mapping[str, Any]) -> None:
    """Require that the keywords of a JSON schema and of its parts have valid values.

    Unknown keywords are annotations, as the standard has it. Boolean `exclusiveMinimum` and
    `exclusiveMaximum`, and lists in `items`, are those of older drafts.

    Raises:
        ValueError: If a keyword has another value. The message begins with its path.
    """
    waiting: list[tuple[str, Any]] = [("", schema)]
    while waiting:
        path, part = waiting.pop()
        if isinstance(part, bool):
            continue

        if not isinstance(part, Mapping):
            raise ValueError(f"{path} must be a schema (an object or a boolean), {_got(part)}")

        for keyword in part.keys() & _RULES.keys():
            is_valid, requirement = _RULES[keyword]
            if not is_valid(part[keyword]):
                name = f"{path}.{keyword}" if path else keyword
                raise ValueError(f"{name} must be {requirement}, {_got(part[keyword])}")

        waiting.extend(_parts(path, part))


def _parts(path: str, schema: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    prefix = f"{path}." if path else ""
    for keyword in schema.keys() & (_SCHEMAS | _LISTS_OF_SCHEMAS.keys() | _MAPS_OF_SCHEMAS.keys()):
        value = schema[keyword]
        if keyword in _MAPS_OF_SCHEMAS:
            yield from ((f"{prefix}{keyword}.{name}", part) for name, part in value.items())
        elif isinstance(value, list) and (keyword == "items" or keyword in _LISTS_OF_SCHEMAS):
            yield from ((f"{prefix}{keyword}[{i}]", part) for i, part in enumerate(value))
        else:
            yield f"{prefix}{keyword}", value


def _got(value: object) -> str:
    return f"got {safe_repr(value)}"


# ruff: noqa: ANN401 - the values of JSON.


def _is_type(value: Any) -> bool:
    names = value if isinstance(value, list) else [value]
    return bool(names) and all(isinstance(name, str) and name in _TYPES for name in names)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return _is_number(value) and value >= 0 and value % 1 == 0


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_list_of_text(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


_Rule = tuple[Callable[[Any], bool], str]
_NUMBER: Final[_Rule] = (_is_number, "a number")
_LIMIT: Final[_Rule] = (lambda value: isinstance(value, bool) or _is_number(value), "a number")
_POSITIVE: Final[_Rule] = (lambda value: _is_number(value) and value > 0, "a positive number")
_COUNT: Final[_Rule] = (_is_count, "a non-negative integer")
_TEXT: Final[_Rule] = (_is_text, "a string")
_BOOLEAN: Final[_Rule] = (lambda value: isinstance(value, bool), "a boolean")
_LIST: Final[_Rule] = (lambda value: isinstance(value, list), "a list")
_SCHEMA_LIST: Final[_Rule] = (
    lambda value: isinstance(value, list) and bool(value),
    "a non-empty list of schemas",
)
_SCHEMA_MAP: Final[_Rule] = (
    lambda value: isinstance(value, Mapping) and all(map(_is_text, value)),
    "an object of schemas",
)

_SCHEMAS: Final = frozenset(
    (
        *("additionalProperties", "contains", "else", "if", "items", "not", "propertyNames"),
        *("then", "unevaluatedItems", "unevaluatedProperties"),
    )
)
_LISTS_OF_SCHEMAS: Final = dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), _SCHEMA_LIST)
_MAPS_OF_SCHEMAS: Final = dict.fromkeys(
    ("$defs", "definitions", "dependentSchemas", "patternProperties", "properties"), _SCHEMA_MAP
)
_RULES: Final[Mapping[str, _Rule]] = MappingProxyType(
    {
        "type": (_is_type, _TYPE),
        "required": (_is_list_of_text, "a list of strings"),
        "enum": _LIST,
        "multipleOf": _POSITIVE,
        "uniqueItems": _BOOLEAN,
        **dict.fromkeys(("minimum", "maximum"), _NUMBER),
        **dict.fromkeys(("exclusiveMinimum", "exclusiveMaximum"), _LIMIT),
        **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems"), _COUNT),
        **dict.fromkeys(("minProperties", "maxProperties"), _COUNT),
        **dict.fromkeys(("$ref", "pattern", "format", "title", "description"), _TEXT),
        **_LISTS_OF_SCHEMAS,
        **_MAPS_OF_SCHEMAS,
    }
)
