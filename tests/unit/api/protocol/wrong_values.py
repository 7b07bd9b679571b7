"""Values of wrong types, for tests of argument validation."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aiomlc import BadRequestError

USER = {"role": "user", "content": "Hi"}


class _Odd:
    """A value that no argument accepts."""

    def __repr__(self) -> str:
        return "_Odd()"


ODD = _Odd()
# Values that are not of the type, ODD included.
NOT_STRINGS = [5, 1.5, b"a", ["a"], {"a": 1}, ODD]
NOT_NUMBERS = ["1", [1], {"a": 1}, ODD, 1j]
NOT_FUNCTIONS = ["f", 5, [print], ODD]
NOT_LISTS = [5, "a b", b"ab", {"a": 1}, ODD]
NOT_BOOLEANS = ["yes", 1, [True], ODD]


def rejected(call: Callable[[], object]) -> BadRequestError:
    """Return the BadRequestError of a call, whose message must contain the argument's name."""
    with pytest.raises(BadRequestError) as caught:
        call()

    assert caught.value.param is None or caught.value.param.split("[")[0] in str(caught.value)
    assert not has_pydantics_words(str(caught.value))
    return caught.value


def has_pydantics_words(message: str) -> bool:
    """Return whether a message has words of pydantic's that say nothing to a user."""
    return any(words in message for words in ("Value error", "Input should", "pydantic.dev"))
