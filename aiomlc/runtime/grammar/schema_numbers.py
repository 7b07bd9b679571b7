"""The numbers of JSON schemas, which the grammar library reads as 64-bit floats.

Integers beyond 2**53 may be changed by that, and some bounds cannot be made a pattern. A number is
enforced exactly or refused; only a bound at the end of a type's range, which generators of schemas
write, is left out.
"""

from __future__ import annotations

__all__ = ("check_numbers", "without_type_limits")

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any, Final

from aiomlc.errors import GrammarError
from aiomlc.validation.json_values import short_repr

Schema = Mapping[str, Any]
Number = int | float

_UPPER: Final = ("maximum", "exclusiveMaximum")
_LOWER: Final = ("minimum", "exclusiveMinimum")
_LARGEST_COUNTS: Final = ("maxLength", "maxItems", "maxProperties")
_SMALLEST_COUNTS: Final = ("minLength", "minItems", "minProperties")
_MAPS_OF_SCHEMAS: Final = frozenset(
    {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"}
)
_VALUES: Final = frozenset({"const", "enum", "default", "examples", "example"})
# The ends of int64, uint64, float32 and float64.
_ENDS: Final = frozenset(
    {2**63 - 1, 2**63, 2**64 - 1, 2**64, 3.4028234663852886e38, 1.7976931348623157e308}
)
_SMALLEST_FLOATS: Final = frozenset({5e-324, 2.2250738585072014e-308})
# No answer has as many characters, items or properties.
_MAX_COUNT: Final = 2**31 - 1
_EXACT: Final = 2**53
_END_OF_INT: Final = 2**63
_MAX_ALONE: Final = 10**18  # Of a bound that has no opposite one, towards infinity.
_MAX_DECIMALS: Final = 60


def without_type_limits(schema: Schema) -> dict[str, Any]:
    """Return a schema without bounds that no answer violates.

    These are bounds at the ends of integer and floating-point types, and very large maximum
    lengths. The smallest positive float as a minimum becomes the exclusive minimum 0.
    """
    simplified: dict[str, Any] = json.loads(json.dumps(schema))
    for part in _schemas(simplified):
        for key in (*_UPPER, *_LOWER, *_LARGEST_COUNTS, *_SMALLEST_COUNTS):
            if _is_number(part.get(key)):
                _simplify(part, key)
    return simplified


def _simplify(schema: dict[str, Any], key: str) -> None:
    value: Number = schema[key]
    sign = 1 if key in _UPPER else -1
    if key in _LARGEST_COUNTS + _SMALLEST_COUNTS:
        if value == math.floor(value):
            schema[key] = int(value)
        if key in _LARGEST_COUNTS and value > _MAX_COUNT:
            del schema[key]
    elif sign * value in _ENDS:
        del schema[key]
    elif -sign * value in _SMALLEST_FLOATS:
        del schema[key]
        schema.setdefault(_UPPER[1] if sign > 0 else _LOWER[1], 0)


def check_numbers(root: Schema) -> None:
    """Require that every number of a schema is enforced as it is.

    Raises:
        GrammarError: If one cannot be; the message names the keyword and the number.
    """
    for schema in _schemas(root):
        _check_schema(schema)


def _schemas(root: Schema) -> Iterator[dict[str, Any]]:
    """Yield all schemas of a document, whether or not they are referred to."""
    waiting: list[Any] = [root]
    while waiting:
        schema = waiting.pop()
        if isinstance(schema, list):
            waiting += schema
        elif isinstance(schema, dict):
            yield schema
            waiting += _parts(schema)


def _parts(schema: Schema) -> Iterator[Any]:
    for key, value in schema.items():
        if key in _MAPS_OF_SCHEMAS and isinstance(value, dict):
            yield from value.values()
        elif key not in _VALUES and isinstance(value, dict | list):
            yield value


def _check_schema(schema: Schema) -> None:
    for key in (*_UPPER, *_LOWER):
        if _is_number(schema.get(key)):
            _check_bound(schema, key)
    for key in (*_LARGEST_COUNTS, *_SMALLEST_COUNTS):
        value: Any = schema.get(key)
        if _is_number(value) and value > _MAX_COUNT:
            raise GrammarError(f"{key}: must be at most {_MAX_COUNT}, got {short_repr(value)}")
    for key in ("const", "enum"):
        if key in schema:
            _check_constants(key, schema[key])


def _check_bound(schema: Schema, key: str) -> None:
    value: Number = schema[key]
    if abs(value) < _EXACT:
        if value and abs(value) < 10.0**-_MAX_DECIMALS:
            problem = f"must be 0 or at least 1e-{_MAX_DECIMALS}"
            raise GrammarError(f"{key}: {problem} in size, got {value}; leave it out")

        return

    if not _is_exact_bound(schema, key, value):
        raise GrammarError(
            f"{key}: a bound of {_EXACT} or more in size is only supported if it can be enforced "
            f"exactly, got {short_repr(value)}; leave it out"
        )


def _is_exact_bound(schema: Schema, key: str, value: Number) -> bool:
    kind = schema.get("type")
    if key.startswith("exclusive") and kind != "number":
        return False  # The library computes the neighbor of the number.

    keeps = _keeps_integer(value) if kind == "integer" else _keeps_decimal(value)
    is_outward = (value > 0) == (key in _UPPER)
    has_opposite = any(_is_number(schema.get(other)) for other in _opposite(key))
    return keeps and abs(value) < (_END_OF_INT if is_outward or has_opposite else _MAX_ALONE)


def _opposite(key: str) -> tuple[str, ...]:
    return _LOWER if key in _UPPER else _UPPER


def _check_constants(key: str, value: Any) -> None:  # noqa: ANN401 - JSON.
    waiting: list[Any] = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict | list):
            members: Iterable[Any] = part.values() if isinstance(part, dict) else part
            waiting += members
        elif type(part) is int and not _is_exact_constant(part):
            raise GrammarError(
                f"{key}: an integer beyond {_EXACT} is only supported if it can be enforced "
                f"exactly, got {short_repr(part)}; use a string"
            )


def _is_exact_constant(value: int) -> bool:
    if abs(value) < _END_OF_INT:
        return _keeps_integer(value)

    # Integers of 64 bits are cut off at the end of the signed ones; larger ones are floats.
    return not -_END_OF_INT <= value < 2 * _END_OF_INT and _keeps_decimal(value)


def _keeps_integer(value: Number) -> bool:
    """Return whether a 64-bit float has the value."""
    return abs(value) < 2**1024 and float(value) == value


def _keeps_decimal(value: Number) -> bool:
    """Return whether the shortest decimal number of the value's float is the value."""
    return _keeps_integer(value) and (
        isinstance(value, float) or Decimal(repr(float(value))) == value
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and _is_finite(value)


def _is_finite(value: Number) -> bool:
    return isinstance(value, int) or math.isfinite(value)
