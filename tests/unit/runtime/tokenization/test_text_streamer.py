"""Incremental detokenization with `TextStreamer`."""

from __future__ import annotations

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import decoders, models

from aiomlc import TextStreamer
from aiomlc.errors import BadRequestError
from aiomlc.runtime.tokenization.tokenizer import Tokenizer
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


def sentence_piece() -> Tokenizer:
    vocabulary = {"▁": 0, "▁a": 1, "b": 2, "<0xC3>": 3, "<0xA9>": 4}
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=[], byte_fallback=True))
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    backend.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)])
    return Tokenizer(backend)


@pytest.mark.parametrize("token_ids", [[1, 2, 1], [2, 1], [0, 1], [0], [3, 4, 1], []])
def test_the_text_of_a_sentence_piece_model_equals_the_decoded_text(token_ids: list[int]) -> None:
    tokenizer = sentence_piece()
    streamer = TextStreamer(tokenizer)

    text = "".join(streamer.put([token_id]) for token_id in token_ids) + streamer.finish()

    assert text == tokenizer.decode(token_ids)
    assert tokenizer.strips_leading_space


def test_a_streamer_can_keep_the_leading_space() -> None:
    streamer = TextStreamer(sentence_piece(), keep_leading_space=True)

    assert streamer.put([1, 2]) == " ab"


def test_put_after_finish_is_rejected() -> None:
    streamer = TextStreamer(TOKENIZER)
    streamer.finish()

    with pytest.raises(BadRequestError, match="not expected to be invoked after finish"):
        streamer.put([1])


def test_a_token_id_outside_of_the_vocabulary_is_rejected() -> None:
    with pytest.raises(BadRequestError, match="token id 256"):
        TextStreamer(TOKENIZER).put([256])
