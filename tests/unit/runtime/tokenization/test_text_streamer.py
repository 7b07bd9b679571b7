"""Token ids to text, as they come."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiomlc import TextStreamer
from aiomlc.errors import BadRequestError
from aiomlc.testing import FakeCore, fake_model

TOKENIZER = fake_model(FakeCore()).tokenizer


@given(st.text(), st.integers(1, 4))
def test_the_pieces_are_the_text_and_never_half_a_character(text: str, size: int) -> None:
    streamer = TextStreamer(TOKENIZER)
    token_ids = TOKENIZER.encode(text)

    pieces = [
        streamer.put(token_ids[start : start + size]) for start in range(0, len(token_ids), size)
    ]

    assert "".join(pieces) + streamer.finish() == text
    assert all("\ufffd" not in piece for piece in pieces) or "\ufffd" in text


def test_a_character_without_its_other_half_is_marked_at_the_end() -> None:
    streamer = TextStreamer(TOKENIZER)
    half = TOKENIZER.encode("é")[:1]

    assert streamer.put(half) == ""
    assert streamer.finish() == "\ufffd"


def test_nothing_comes_after_the_end() -> None:
    streamer = TextStreamer(TOKENIZER)
    streamer.finish()

    with pytest.raises(BadRequestError, match="not expected to be invoked after finish"):
        streamer.put([1])


def test_an_id_outside_the_vocabulary_is_refused() -> None:
    with pytest.raises(BadRequestError, match="token id 256"):
        TextStreamer(TOKENIZER).put([256])
