"""Checks of JSON-like values from callers: valid UTF-8, limited nesting, limited integers."""

from __future__ import annotations

__all__ = (
    "MAX_DEPTH",
    "MAX_ITEMS",
    "NOT_UTF8",
    "TOO_DEEP",
    "InvalidValueError",
    "is_utf8",
    "read_json",
    "safe_repr",
    "short_name",
    "short_repr",
    "to_plain",
)

import json
import reprlib
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

from pydantic import BaseModel

# The readers of a value (pydantic, json, Jinja, llguidance) recurse at least once per level.
MAX_DEPTH: Final = 100
TOO_DEEP: Final = f"is nested deeper than {MAX_DEPTH} levels"
_MAX_INT_BITS = 10_000  # Python does not convert integers with thousands of digits to strings.
_TOO_LONG = f"is an integer of more than {_MAX_INT_BITS} bits"
NOT_UTF8 = "contains a lone surrogate, which cannot be encoded as UTF-8"

_MAX_PRINTED_BITS = 128
_MAX_PRINTED_NAME = 64  # Characters.
_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = 200
_SCALAR_TYPES = frozenset({bool, bytes, float, int, type(None)})
_SCALARS = (str, int, float, bytes)
#: The maximum number of items of a list or an object that a caller passes; more is not read.
MAX_ITEMS = 2_000_000
T = TypeVar("T")


class InvalidValueError(ValueError):
    """The reason why a value is invalid, and its location: `[0].content`, or "" for the value."""

    def __init__(self, reason: str, path: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.path = path

    def within(self, step: str) -> InvalidValueError:
        """Return the same for the enclosing value; excessive nesting has no further location."""
        return self if self.reason == TOO_DEEP else InvalidValueError(self.reason, step + self.path)


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


def short_name(name: str) -> str:
    """Return a name for a message, without the end of one that is very long."""
    return name if len(name) <= _MAX_PRINTED_NAME else f"{name[: _MAX_PRINTED_NAME - 3]}..."


def safe_repr(value: object) -> str:
    """Return `repr(value)` for a message, shortened; never raises, whatever the value does."""
    if isinstance(value, int) and not isinstance(value, bool):
        return short_repr(value)

    try:
        return _REPR.repr(value)
    except Exception:  # noqa: BLE001 - of the caller's class.
        return f"an object of type {type(value).__name__}"


def to_plain(value: object, depth: int = 0) -> Any:  # noqa: ANN401 - of any JSON-like type.
    """Copy a value from a caller, so that no later code runs methods of the caller's classes.

    Mappings become dicts; lists, tuples, deques and iterators become lists; subclasses of str, int
    and float become the class itself. Pydantic models are searched and kept, and objects of other
    classes are kept.

    Raises:
        InvalidValueError: If a part of the value is invalid or raises while it is read.
    """
    if type(value) in _SCALAR_TYPES:
        return _check_size(value)

    try:
        return _plain_scalar(value) if isinstance(value, _SCALARS) else _plain(value, depth)
    except InvalidValueError:
        raise
    except Exception as error:
        raise InvalidValueError(f"cannot be read: it raises {type(error).__name__}") from error


def read_json(text: str) -> Any:  # noqa: ANN401 - JSON has no narrower type.
    """Return the value of a JSON document.

    Raises:
        ValueError: If the text is not JSON or its value is invalid. The message is a predicate,
            such as `is not JSON: ...`.
    """
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ValueError(f"is not JSON: {error}") from None
    except RecursionError:
        raise ValueError(TOO_DEEP) from None

    return to_plain(value)


def _plain_scalar(value: object) -> object:
    """Return a str, int or float of exactly that class: subclasses may override any method."""
    if isinstance(value, str):
        text = str.__str__(value)
        if not is_utf8(text):
            raise InvalidValueError(NOT_UTF8)

        return text

    if isinstance(value, int):
        return _check_size(int.__int__(value))

    return float.__float__(value) if isinstance(value, float) else value


def _check_size(value: object) -> object:
    if _is_too_long(value):
        raise InvalidValueError(_TOO_LONG)

    return value


def _plain(value: object, depth: int) -> object:
    if depth == MAX_DEPTH and isinstance(value, (Iterable, BaseModel)):
        raise InvalidValueError(TOO_DEEP)

    if isinstance(value, BaseModel):
        _plain_dict(dict(value).items(), depth)
        return value

    if isinstance(value, Mapping):
        return _plain_dict(value.items(), depth)

    if isinstance(value, (set, frozenset)):
        return set(_plain_list(value, depth))

    if isinstance(value, (list, tuple, deque, Iterator)):
        return _plain_list(value, depth)

    return value


def _plain_dict(items: Iterable[tuple[Any, object]], depth: int) -> dict[Any, object]:
    fields = {}
    for name, value in _limited(items):
        key = _plain_key(name)
        try:
            fields[key] = to_plain(value, depth + 1)
        except InvalidValueError as error:
            raise error.within(f".{short_name(short_repr(key))}") from error.__cause__

    return fields


def _plain_key(name: Any) -> Any:  # noqa: ANN401 - of any hashable type.
    try:
        return to_plain(name) if isinstance(name, _SCALARS) else name
    except InvalidValueError as error:
        raise InvalidValueError(f"has a key that {error.reason}") from None


def _plain_list(values: Iterable[object], depth: int) -> list[object]:
    # Fast path for token ids, of which there may be many.
    if type(values) is list and set(map(type, values)) == {int}:
        if any(map(_is_too_long, _bounds(values))):
            index = next(i for i, value in enumerate(values) if _is_too_long(value))
            raise InvalidValueError(_TOO_LONG, f"[{index}]")

        return values

    items = []
    for index, value in enumerate(_limited(values)):
        try:
            items.append(to_plain(value, depth + 1))
        except InvalidValueError as error:
            raise error.within(f"[{index}]") from error.__cause__

    return items


def _limited(values: Iterable[T]) -> Iterator[T]:
    """Iterate over the values; a caller's iterator may never end."""
    for index, value in enumerate(values):
        if index == MAX_ITEMS:
            raise InvalidValueError(f"has more than {MAX_ITEMS} items")

        yield value
