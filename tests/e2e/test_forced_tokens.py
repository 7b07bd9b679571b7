"""Forced text is tokenized as by the model's tokenizer."""

from __future__ import annotations

import json
from pathlib import Path

import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models

from aiomlc.runtime.native.grammar_compiler import encode_by_pairs
from aiomlc.runtime.tokenization.tokenizer import Tokenizer
from tests.e2e.conftest import BUNDLED
from tests.e2e.random_schemas import random_schema
from tests.unit.runtime.tokenization import test_tokenizer


def bundled_tokenizer() -> Tokenizer:
    return Tokenizer(Path(BUNDLED) / "tokenizer.json")


def test_forced_json_has_the_tokens_of_the_tokenizer() -> None:
    tokenizer = bundled_tokenizer()
    pairs = tokenizer.byte_pairs()
    assert pairs is not None

    for seed in range(300):
        text = json.dumps(random_schema(seed), ensure_ascii=False)
        assert encode_by_pairs(pairs, text.encode()) == tokenizer.encode(text)


@settings(deadline=None)
@given(st.text())
def test_byte_level_tokens_decode_to_the_text(text: str) -> None:
    tokenizer = bundled_tokenizer()
    pairs = tokenizer.byte_pairs()
    assert pairs is not None
    vocabulary = tokenizer.vocab_bytes

    tokens = encode_by_pairs(pairs, text.encode())

    assert b"".join(vocabulary[token] for token in tokens) == text.encode()


@given(st.text())
def test_sentence_piece_tokens_decode_to_the_text(text: str) -> None:
    tokenizer = Tokenizer(test_tokenizer.sentence_piece())
    pairs = tokenizer.byte_pairs()
    assert pairs is not None
    vocabulary = tokenizer.vocab_bytes

    tokens = encode_by_pairs(pairs, text.encode())

    assert b"".join(vocabulary[token] for token in tokens) == text.encode()


def test_unigram_tokenizers_have_no_byte_pairs() -> None:
    unigram = tokenizers.Tokenizer(models.Unigram([("<unk>", 0.0), ("a", -1.0)], unk_id=0))
    unigram.decoder = decoders.Metaspace()

    assert Tokenizer(unigram).byte_pairs() is None
