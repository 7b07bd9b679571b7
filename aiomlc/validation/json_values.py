"""Checks of JSON-like values from callers: valid UTF-8, limited nesting, limited integers."""

from __future__ import annotations

__all__ = (
    "NOT_UTF8",
    "InvalidValue",
    "find_invalid",
    "is_utf8",
    "read_json",
    "safe_repr",
    "short_repr",
)

import json
import reprlib
from collections import deque
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from pydantic import BaseModel

# The readers of a value (pydantic, json, Jinja, llguidance) recurse at least once per level.
_MAX_DEPTH = 100
_TOO_DEEP = f"is nested deeper than {_MAX_DEPTH} levels"
_MAX_INT_BITS = 10_000  # Python does not convert integers with thousands of digits to strings.
_TOO_LONG = f"is an integer of more than {_MAX_INT_BITS} bits"
NOT_UTF8 = "contains a lone surrogate, which cannot be encoded as UTF-8"

_MAX_PRINTED_BITS = 128
_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = 200
_SCALAR_TYPES = frozenset({bool, bytes, float, int, type(None)})


class InvalidValue(NamedTuple):
    """The reason why a value is invalid, and its location: `[0].content`, or "" for the value."""

    path: str
    reason: str

    def prefixed(self, step: str) -> InvalidValue:
        """Return the same for the enclosing value; excessive nesting has no further location."""
        return self if self.reason == _TOO_DEEP else InvalidValue(step + self.path, self.reason)


def is_utf8(text: str) -> bool:
    """Return whether a string can be encoded as UTF-8, as tokenizers and JSON require."""
    if text.isascii():
        return True

    try:
        text.encode()
    except UnicodeEncodeError:
        return False

    return True


def _bounds(numbers: Collection[Any]) -> tuple[object, object]:
    return min(numbers), max(numbers)


def _is_too_long(value: object) -> bool:
    return isinstance(value, int) and value.bit_length() > _MAX_INT_BITS


def short_repr(value: object) -> str:
    """Return `str(value)` for a message, or the size of a very large integer."""
    if isinstance(value, int) and value.bit_length() > _MAX_PRINTED_BITS:
        return f"a number of {value.bit_length()} bits"

    return str(value)


def safe_repr(value: object) -> str:
    """Return `repr(value)` for a message, shortened; never raises, whatever the value does."""
    if isinstance(value, int) and not isinstance(value, bool):
        return short_repr(value)

    try:
        return _REPR.repr(value)
    except Exception:  # noqa: BLE001 - of the caller's class.
        return f"an object of type {type(value).__name__}"


def find_invalid(value: object, depth: int = 0) -> InvalidValue | None:
    """Return the first invalid part of a value, or None if the value is valid.

    Only mappings, lists, sets and pydantic models are searched.
    """
    if type(value) in _SCALAR_TYPES:
        return InvalidValue("", _TOO_LONG) if _is_too_long(value) else None

    if isinstance(value, str):
        return None if is_utf8(value) else InvalidValue("", NOT_UTF8)

    if isinstance(value, BaseModel):
        value = dict(value)

    if depth == _MAX_DEPTH:
        return InvalidValue("", _TOO_DEEP)

    if isinstance(value, Mapping):
        return _find_in_mapping(value, depth)

    if isinstance(value, (list, tuple, set, frozenset, deque)):
        return _find_in_collection(value, depth)

    return None


def read_json(text: str) -> Any:  # noqa: ANN401 - JSON has no narrower type.
    """Return the value of a JSON document.

    Raises:
        ValueError: If the text is not JSON or its value is invalid. The message is a predicate,
            such as `is not JSON: ...`.
    """
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ValueError(f"is not JSON: {error}") from error
    except RecursionError as error:
        raise ValueError(_TOO_DEEP) from error

    if invalid := find_invalid(value):
        raise ValueError(invalid.reason)

    return value


def _find_in_mapping(fields: Mapping[Any, object], depth: int) -> InvalidValue | None:
    for name, value in fields.items():
        if isinstance(name, str) and not is_utf8(name):
            return InvalidValue("", f"has a key that {NOT_UTF8}")

        if invalid := find_invalid(value, depth + 1):
            return invalid.prefixed(f".{short_repr(name)}")

    return None


def _find_in_collection(values: Collection[object], depth: int) -> InvalidValue | None:
    # Fast path for token ids, of which there may be many.
    if set(map(type, values)) == {int} and not any(map(_is_too_long, _bounds(values))):
        return None

    for index, value in enumerate(values):
        if invalid := find_invalid(value, depth + 1):
            return invalid.prefixed(f"[{index}]")

    return None
