"""Arguments that are no fields of a request: of the types they have to be, or refused by name."""

from __future__ import annotations

__all__ = (
    "check_callable",
    "check_flag",
    "check_path",
    "check_seconds",
    "check_str",
    "check_token_ids",
    "check_type",
    "wrong_type",
)

from collections.abc import Sequence
from os import PathLike, fspath

from aiomlc.errors import BadRequestError
from aiomlc.validation.json_values import NOT_UTF8, is_utf8


def check_type(name: str, value: object, types: type | tuple[type, ...], what: str) -> None:
    """Refuse what is of other types; `what` says what those are.

    Raises:
        BadRequestError: it is; `param` is `name`.
    """
    if not isinstance(value, types):
        raise wrong_type(name, value, what)


def check_str(name: str, value: object) -> None:
    """Refuse what is no text.

    Raises:
        BadRequestError: it is none; `param` is `name`.
    """
    if not isinstance(value, str):
        raise wrong_type(name, value, "a text")

    if not is_utf8(value):
        raise BadRequestError(f"{name}: {NOT_UTF8}", param=name)


def check_flag(name: str, value: object) -> None:
    """Refuse what is neither true nor false.

    Raises:
        BadRequestError: it is neither; `param` is `name`.
    """
    check_type(name, value, bool, "True or False")


def check_callable(name: str, value: object) -> None:
    """Refuse what cannot be called, unless it is None.

    Raises:
        BadRequestError: it cannot; `param` is `name`.
    """
    if value is not None and not callable(value):
        raise wrong_type(name, value, "a function")


def check_path(name: str, value: object) -> None:
    """Refuse what is no path, unless it is None.

    Raises:
        BadRequestError: it is none; `param` is `name`.
    """
    if value is not None and not (
        isinstance(value, (str, PathLike)) and isinstance(fspath(value), str)
    ):
        raise wrong_type(name, value, "a path")


def check_seconds(name: str, value: object) -> None:
    """Refuse what is no length of time, unless it is None; one without an end is one.

    Raises:
        BadRequestError: it is none; `param` is `name`.
    """
    if value is None:
        return

    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise wrong_type(name, value, "a number of seconds")

    if not value >= 0:  # Also what is no number.
        raise BadRequestError(f"{name} is {value}, not from 0", param=name)


def check_token_ids(name: str, value: object, vocab_size: int | None = None) -> None:
    """Refuse what is no sequence of token ids, or has one that is none of the vocabulary's.

    Raises:
        BadRequestError: it is, or it has; `param` is `name`.
    """
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes, bytearray)):
        raise wrong_type(name, value, "a list of token ids")

    if any(type(token_id) is not int for token_id in value):
        raise BadRequestError(f"{name} has something that is no token id", param=name)

    if vocab_size is not None and value and not 0 <= min(value) <= max(value) < vocab_size:
        raise BadRequestError(f"{name}: a token id is not in [0, {vocab_size})", param=name)


def wrong_type(name: str, value: object, what: str) -> BadRequestError:
    """The error of an argument that is not what it has to be."""
    return BadRequestError(f"{name} is of type {type(value).__name__}, not {what}", param=name)
