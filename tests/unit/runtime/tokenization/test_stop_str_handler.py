"""Stop strings in sequences of token ids, compared with a search in the whole text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiomlc import StopStrHandler
from aiomlc.errors import BadRequestError
from aiomlc.runtime.tokenization.tokenizer import Tokenizer
from aiomlc.testing import FakeCore, fake_model
from tests.unit.runtime.tokenization.test_tokenizer import BYTE_LEVEL

BYTES = fake_model(FakeCore()).tokenizer  # Token i is byte i.


def run(handler: StopStrHandler, token_ids: list[int]) -> list[int]:
    returned: list[int] = []
    for token_id in token_ids:
        returned += handler.put(token_id)
        if handler.stop_triggered:
            return returned

    return returned + handler.finish()


@given(st.text("ab", max_size=30), st.lists(st.text("ab", min_size=1, max_size=4), max_size=3))
def test_the_text_ends_before_the_first_stop_string(text: str, stops: list[str]) -> None:
    handler = StopStrHandler(stops, BYTES)

    returned = run(handler, list(text.encode()))

    ends = [text.find(stop) + len(stop) for stop in stops if stop in text]
    first = (
        [text[: min(ends)].removesuffix(s) for s in stops if text[: min(ends)].endswith(s)]
        if (ends)
        else [text]
    )
    assert bytes(returned).decode() == min(first, key=len)
    assert handler.stop_triggered == bool(ends)


def test_a_token_that_a_stop_string_starts_in_is_dropped() -> None:
    tokenizer = Tokenizer(BYTE_LEVEL)
    token_ids = tokenizer.encode("the quick brown")
    brown = next(i for i, token_id in enumerate(token_ids) if "b" in tokenizer.decode([token_id]))
    handler = StopStrHandler(["row"], tokenizer)

    returned = run(handler, token_ids)

    assert handler.stop_triggered
    assert returned == token_ids[: len(returned)]
    assert "row" not in tokenizer.decode(returned)
    assert len(returned) >= brown


def test_tokens_that_may_start_a_stop_string_are_held_until_the_end() -> None:
    handler = StopStrHandler(["\n\n\n"], BYTES)

    assert [handler.put(ord(c)) for c in "a\n\n"] == [[ord("a")], [], []]
    assert handler.finish() == [10, 10]


def test_without_stop_strings_every_token_is_returned_at_once() -> None:
    handler = StopStrHandler([], BYTES)

    assert handler.put(5) == [5]
    assert handler.finish() == []


def test_invalid_calls_are_rejected() -> None:
    with pytest.raises(BadRequestError, match=r"Stop string cannot be empty\."):
        StopStrHandler([""], BYTES)
    with pytest.raises(BadRequestError, match="tokenizer"):
        StopStrHandler(["a"], "tokenizer")  # type: ignore[arg-type]

    handler = StopStrHandler(["a"], BYTES)
    with pytest.raises(BadRequestError, match="token_id"):
        handler.put(256)
    assert handler.put(ord("a")) == []
    with pytest.raises(BadRequestError, match=r"Cannot put new token when already stopped\."):
        handler.put(1)
    assert handler.finish() == []
