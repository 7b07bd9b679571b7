"""Checks of arguments that are not fields of a request."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiomlc.errors import BadRequestError
from aiomlc.validation.arguments import check_path, check_token_ids, outside_vocabulary


@pytest.mark.parametrize(("ids", "outside"), [([3, 8, -1], "8"), ([0, -1, 9], "-1"), ([8], "8")])
def test_an_error_names_the_first_token_id_outside_of_the_vocabulary(
    ids: list[int], outside: str
) -> None:
    message = rf"^token_ids: token ids must be in \[0, 8\), got {outside}$"
    with pytest.raises(BadRequestError, match=message) as caught:
        check_token_ids("token_ids", ids, 8)

    assert caught.value.param == "token_ids"


@pytest.mark.parametrize("ids", [[], [0], [7, 0, 7]])
def test_token_ids_of_the_vocabulary_are_accepted(ids: list[int]) -> None:
    check_token_ids("token_ids", ids, 8)

    assert outside_vocabulary(ids, 8) is None


def test_an_error_gives_the_size_of_a_large_token_id() -> None:
    with pytest.raises(BadRequestError, match=r"in \[0, 8\), got a number of 20001 bits$"):
        check_token_ids("token_ids", [1 << 20_000], 8)


@pytest.mark.parametrize(
    ("path", "reason"),
    [("", "is empty: pass a path"), (Path(), None), ("a", None), (None, None), (3, "a path")],
)
def test_a_path_must_not_be_empty(path: object, reason: str | None) -> None:
    if reason is None:
        check_path("model", path)
        return

    with pytest.raises(BadRequestError, match=reason) as caught:
        check_path("model", path)

    assert caught.value.param == "model"
