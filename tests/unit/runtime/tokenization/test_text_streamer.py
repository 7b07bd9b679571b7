"""Incremental detokenization with `TextStreamer`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiomlc import TextStreamer
from aiomlc.errors import BadRequestError
from aiomlc.testing import FakeCore, fake_model

TOKENIZER = fake_model(FakeCore()).tokenizer


@given(st.text(), st.integers(1, 4))
def test_the_chunks_are_the_text_without_incomplete_characters(text: str, chunk_size: int) -> None:
    streamer = TextStreamer(TOKENIZER)
    token_ids = TOKENIZER.encode(text)

    chunks = [
        streamer.put(token_ids[start : start + chunk_size])
        for start in range(0, len(token_ids), chunk_size)
    ]

    assert "".join(chunks) + streamer.finish() == text
    assert all("\ufffd" not in chunk for chunk in chunks) or "\ufffd" in text


def test_an_incomplete_character_is_replaced_at_the_end() -> None:
    streamer = TextStreamer(TOKENIZER)
    half = TOKENIZER.encode("é")[:1]

    assert streamer.put(half) == ""
    assert streamer.finish() == "\ufffd"


def test_put_after_finish_is_rejected() -> None:
    streamer = TextStreamer(TOKENIZER)
    streamer.finish()

    with pytest.raises(BadRequestError, match="not expected to be invoked after finish"):
        streamer.put([1])


def test_a_token_id_outside_of_the_vocabulary_is_rejected() -> None:
    with pytest.raises(BadRequestError, match="token id 256"):
        TextStreamer(TOKENIZER).put([256])
