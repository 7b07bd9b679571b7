"""The limits on the names, objects and lists of a request, whatever they mean."""

from __future__ import annotations

__all__ = ("MAX_NODES", "check_field_count", "check_shape")

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from aiomlc.errors import BadRequestError
from aiomlc.validation.json_values import MAX_DEPTH, TOO_DEEP, short_name

#: The most names, objects and lists of a request together.
MAX_NODES: Final = 150_000
_MAX_FIELDS = 256  # Of the request itself.
_MAX_NAMES = 64  # Of an object in it whose names are fixed.
# The classes that are counted, and how they are read even if a subclass has methods of its own.
_READERS: Mapping[type, Callable[[Any], Iterable[object]]] = {
    dict: dict.values,
    list: list.__iter__,
    tuple: tuple.__iter__,
    deque: deque.__iter__,
}
_SCALARS = frozenset({bool, bytes, float, int, str, type(None)})
# The fields with objects of any names, and the number of levels above these.
_FREE_LEVELS = {
    "chat_template_kwargs": 0,
    "extra_body": 0,
    "logit_bias": 0,
    "metadata": 0,
    "response_format": 2,
    "text": 2,
    "tool_choice": 2,
    "tools": 2,
}


def check_field_count(fields: Mapping[str, Any]) -> None:
    """Require that a request has not too many fields.

    Raises:
        BadRequestError: If it has.
    """
    if len(fields) > _MAX_FIELDS:
        raise BadRequestError(
            f"a request must have at most {_MAX_FIELDS} fields, got {len(fields)}"
        )


def check_shape(fields: Mapping[str, Any]) -> None:
    """Require that a request has few enough names, objects and lists to be read in little time.

    Lists that contain themselves have too many, or are too deep.

    Args:
        fields: The fields of a request. Dicts, lists, tuples and deques are counted.

    Raises:
        BadRequestError: If it has too many; `param` names the field.
    """
    check_field_count(fields)
    number = len(fields)
    for name, value in fields.items():
        number = _count(str(name), value, number)


def _count(name: str, value: object, number: int) -> int:
    """Return the number of nodes with those of a field; `number` were counted before."""
    free_level = _FREE_LEVELS.get(name, MAX_DEPTH)
    # Each with the number of containers and the number of objects around it.
    stack: list[tuple[Any, int, int]] = [(value, 0, 0)]
    while stack:
        inner, depth, level = stack.pop()
        children = _children(inner)
        if children is None:
            continue

        if issubclass(type(inner), dict):
            size = len(children)
            number += size
            if size > _MAX_NAMES and level < free_level:
                raise _error(name, f"an object must have at most {_MAX_NAMES} fields, got {size}")

            level += 1

        number += 1
        if depth == MAX_DEPTH:
            raise _error(name, TOO_DEEP)

        if number > MAX_NODES:
            raise _error(name, f"has more than {MAX_NODES} names, objects and lists")

        if not _SCALARS.issuperset(map(type, children)):
            others = (child for child in children if type(child) not in _SCALARS)
            stack.extend((child, depth + 1, level) for child in others)

    return number


def _children(value: object) -> list[object] | None:
    """Return the values in a container, or None for another value."""
    for kind, read in _READERS.items():
        if issubclass(type(value), kind):
            return list(read(value))

    return None


def _error(name: str, reason: str) -> BadRequestError:
    param = short_name(name)
    return BadRequestError(f"{param}: {reason}", param=param)
