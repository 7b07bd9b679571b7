"""Type checks of arguments that are not fields of a request; every error names the argument."""

from __future__ import annotations

__all__ = (
    "check_callable",
    "check_choice",
    "check_flag",
    "check_path",
    "check_seconds",
    "check_str",
    "check_token_ids",
    "check_type",
    "outside_vocabulary",
    "plain_list",
    "plain_str",
    "required_path",
    "wrong_type",
)

from collections.abc import Iterable, Sequence
from itertools import islice
from os import PathLike, fspath
from typing import TypeVar

from aiomlc.errors import BadRequestError
from aiomlc.validation.json_values import MAX_ITEMS, NOT_UTF8, is_utf8, safe_repr, short_repr

T = TypeVar("T")


def check_type(name: str, value: object, types: type | tuple[type, ...], expected: str) -> None:
    """Require an instance of `types`, which the message calls `expected`.

    Raises:
        BadRequestError: If `value` has another type; `param` is `name`.
    """
    if not isinstance(value, types):
        raise wrong_type(name, value, expected)


def check_str(name: str, value: object) -> None:
    """Require a string that can be encoded as UTF-8.

    Raises:
        BadRequestError: If `value` is not such a string; `param` is `name`.
    """
    if not isinstance(value, str):
        raise wrong_type(name, value, "a string")

    if not is_utf8(value):
        raise BadRequestError(f"{name}: {NOT_UTF8}", param=name)


def plain_str(name: str, value: object) -> str:
    """Require a string, and return it without the methods of its subclass.

    Raises:
        BadRequestError: If `value` is not a string; `param` is `name`.
    """
    check_str(name, value)
    assert isinstance(value, str)
    return str.__str__(value)


def plain_list(name: str, values: Iterable[T]) -> list[T]:
    """Read an iterable of the caller's.

    Raises:
        BadRequestError: If it raises, or is not iterable; `param` is `name`.
    """
    try:
        return list(islice(values, MAX_ITEMS))
    except Exception as error:
        raise BadRequestError(
            f"{name} cannot be read: it raises {type(error).__name__}", param=name
        ) from error


def check_flag(name: str, value: object) -> None:
    """Require True or False.

    Raises:
        BadRequestError: If `value` is neither; `param` is `name`.
    """
    check_type(name, value, bool, "True or False")


def check_callable(name: str, value: object) -> None:
    """Require a callable, or None.

    Raises:
        BadRequestError: If `value` is neither; `param` is `name`.
    """
    if value is not None and not callable(value):
        raise wrong_type(name, value, "callable")


def check_choice(name: str, value: object, choices: Sequence[str]) -> None:
    """Require one of several strings.

    Raises:
        BadRequestError: If `value` is none of them; `param` is `name`.
    """
    if not isinstance(value, str) or value not in choices:
        allowed = ", ".join(map(repr, choices))
        message = f"{name} must be one of {allowed}, got {safe_repr(value)}"
        raise BadRequestError(message, param=name)


def check_path(name: str, value: object) -> None:
    """Require a path, or None.

    Raises:
        BadRequestError: If `value` is neither, or empty; `param` is `name`.
    """
    if value is not None:
        required_path(name, value)


def required_path(name: str, value: object) -> str:
    """Return a path as a string.

    Raises:
        BadRequestError: If `value` is no path, or empty; `param` is `name`.
    """
    if not isinstance(value, (str, PathLike)) or not isinstance(path := fspath(value), str):
        raise wrong_type(name, value, "a path")

    if not path:  # It would mean the current directory.
        raise BadRequestError(f"{name} is empty: pass a path, or leave it out", param=name)

    return path


def check_seconds(name: str, value: object) -> None:
    """Require a non-negative number of seconds (infinity allowed), or None.

    Raises:
        BadRequestError: If `value` is neither; `param` is `name`.
    """
    if value is None:
        return

    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise wrong_type(name, value, "a number of seconds")

    if not value >= 0:  # NaN also fails this comparison.
        raise BadRequestError(f"{name} must be >= 0, got {value}", param=name)


def check_token_ids(name: str, value: object, vocab_size: int | None = None) -> None:
    """Require a sequence of token ids, all within the vocabulary if its size is given.

    Raises:
        BadRequestError: If `value` is not a sequence of integers or an id is out of range; `param`
            is `name`.
    """
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes, bytearray)):
        raise wrong_type(name, value, "a list of token ids")

    if any(type(token_id) is not int for token_id in value):
        raise BadRequestError(f"{name} must contain only integer token ids", param=name)

    if vocab_size is not None and (token_id := outside_vocabulary(value, vocab_size)) is not None:
        raise BadRequestError(
            f"{name}: token ids must be in [0, {vocab_size}), got {short_repr(token_id)}",
            param=name,
        )


def outside_vocabulary(token_ids: Sequence[int], vocab_size: int) -> int | None:
    """Return the first token id that is not in `[0, vocab_size)`; None if there is none."""
    if not token_ids or 0 <= min(token_ids) <= max(token_ids) < vocab_size:
        return None

    return next(token_id for token_id in token_ids if not 0 <= token_id < vocab_size)


def wrong_type(name: str, value: object, expected: str) -> BadRequestError:
    """Return the error for an argument of the wrong type.

    Args:
        expected: What it must be: `a string`, `a list of token ids`.
    """
    actual = "None" if value is None else type(value).__name__
    return BadRequestError(f"{name} must be {expected}, got {actual}", param=name)
