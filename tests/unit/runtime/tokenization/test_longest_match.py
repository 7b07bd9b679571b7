"""Tokens that are as long as possible, and exactly a text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiomlc.runtime.tokenization.longest_match import LongestMatch

TOKENS = [b"", b"a", b"b", b"ab", b"abcd", b"c", b"\xffend", b"\xc3", b"\xa9", b"a"]


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        (b"", []),
        (b"abc", [3, 5]),
        (b"abcdab", [4, 3]),
        (b"aab", [1, 3]),
        ("\u00e9".encode(), [7, 8]),
        (b"ab!", [3]),  # No token begins with "!".
        (b"!a", []),
        (b"end", []),  # The name of a special token is text.
    ],
)
def test_tokens_are_the_longest_that_fit(text: bytes, tokens: list[int]) -> None:
    assert LongestMatch(TOKENS).encode(text) == tokens


@given(st.lists(st.binary(min_size=2, max_size=4)), st.binary())
def test_tokens_are_the_text_if_every_byte_is_a_token(longer: list[bytes], text: bytes) -> None:
    tokens = [bytes([byte]) for byte in range(256)] + longer

    ids = LongestMatch(tokens).encode(text)

    assert b"".join(tokens[token_id] for token_id in ids) == text
