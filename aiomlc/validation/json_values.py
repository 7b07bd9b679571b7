"""What callers hand in: text that has a UTF-8 form, and lists and objects that end somewhere."""

from __future__ import annotations

__all__ = ("NOT_UTF8", "InvalidValue", "find_invalid", "is_utf8", "read_json", "short_repr")

import json
from collections import deque
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from pydantic import BaseModel

# Whatever reads a value (pydantic, json, Jinja, llguidance) calls itself once per level or more.
_MAX_DEPTH = 100
_TOO_DEEP = f"is nested deeper than {_MAX_DEPTH} levels"
_ENDLESS_BITS = 10_000  # Python refuses to write out what has thousands of digits.
_TOO_LONG = f"is a number of more than {_ENDLESS_BITS} bits"
NOT_UTF8 = "has half of a surrogate pair, which is no character"

_MAX_BITS = 128  # Of a number in a message.
_PLAIN = frozenset({bool, bytes, float, int, type(None)})


class InvalidValue(NamedTuple):
    """Why a value is refused, and where in it: `[0].content`, or "" for the value itself."""

    path: str
    reason: str

    def below(self, step: str) -> InvalidValue:
        """The same fault, from one level further up. What is too deep is so as a whole."""
        return self if self.reason == _TOO_DEEP else InvalidValue(step + self.path, self.reason)


def is_utf8(text: str) -> bool:
    """Whether a text has a UTF-8 form, as tokenizers and JSON need one."""
    if text.isascii():
        return True

    try:
        text.encode()
    except UnicodeEncodeError:
        return False

    return True


def _bounds(numbers: Collection[Any]) -> tuple[object, object]:
    return min(numbers), max(numbers)


def _is_endless(value: object) -> bool:
    return isinstance(value, int) and value.bit_length() > _ENDLESS_BITS


def short_repr(value: object) -> str:
    """A value for a message: as it is written, but for numbers that fill a page."""
    if isinstance(value, int) and value.bit_length() > _MAX_BITS:
        return f"a number of {value.bit_length()} bits"

    return str(value)


def find_invalid(value: object, depth: int = 0) -> InvalidValue | None:
    """The first thing that no request may have; None if there is nothing of the kind.

    It looks into mappings, lists and pydantic's models, and at nothing else.
    """
    if type(value) in _PLAIN:
        return InvalidValue("", _TOO_LONG) if _is_endless(value) else None

    if isinstance(value, str):
        return None if is_utf8(value) else InvalidValue("", NOT_UTF8)

    if isinstance(value, BaseModel):
        value = dict(value)

    if depth == _MAX_DEPTH:
        return InvalidValue("", _TOO_DEEP)

    if isinstance(value, Mapping):
        return _in_object(value, depth)

    if isinstance(value, (list, tuple, set, frozenset, deque)):
        return _in_list(value, depth)

    return None


def read_json(text: str) -> Any:  # noqa: ANN401 - JSON has no narrower type.
    """The value of a JSON text.

    Raises:
        ValueError: it is none, or has what no request may have; the message begins with a verb.
    """
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ValueError(f"is not JSON: {error}") from error
    except RecursionError as error:
        raise ValueError(_TOO_DEEP) from error

    if fault := find_invalid(value):
        raise ValueError(fault.reason)

    return value


def _in_object(fields: Mapping[Any, object], depth: int) -> InvalidValue | None:
    for name, value in fields.items():
        if isinstance(name, str) and not is_utf8(name):
            return InvalidValue("", f"has a name that {NOT_UTF8}")

        if fault := find_invalid(value, depth + 1):
            return fault.below(f".{short_repr(name)}")

    return None


def _in_list(values: Collection[object], depth: int) -> InvalidValue | None:
    # As token ids are, which may be many.
    if set(map(type, values)) == {int} and not any(map(_is_endless, _bounds(values))):
        return None

    for index, value in enumerate(values):
        if fault := find_invalid(value, depth + 1):
            return fault.below(f"[{index}]")

    return None
