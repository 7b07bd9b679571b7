"""Forced text has the tokens of the model's tokenizer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models, normalizers, pre_tokenizers

from aiomlc.runtime.grammar.grammar import Grammar
from aiomlc.runtime.native.grammar_compiler import NativeGrammarCompiler
from aiomlc.runtime.tokenization.tokenizer import Tokenizer
from tests.e2e.conftest import BUNDLED
from tests.e2e.random_schemas import random_schema
from tests.unit.runtime.tokenization import test_tokenizer


def bundled_tokenizer() -> Tokenizer:
    return Tokenizer(Path(BUNDLED) / "tokenizer.json")


def sentence_piece() -> Tokenizer:
    return Tokenizer(test_tokenizer.sentence_piece())


def test_text_without_a_prefix_has_the_tokens_of_encode() -> None:
    tokenizer = bundled_tokenizer()

    for seed in range(300):
        text = json.dumps(random_schema(seed), ensure_ascii=False)
        assert tokenizer.encode_within(text) == tokenizer.encode(text)


@settings(deadline=None)
@given(st.text())
@pytest.mark.parametrize("tokenizer", [bundled_tokenizer(), sentence_piece()])
def test_tokens_decode_to_the_text(tokenizer: Tokenizer, text: str) -> None:
    tokens = tokenizer.encode_within(text)

    assert b"".join(tokenizer.vocab_bytes[token] for token in tokens) in {text.encode(), b""}
    if tokenizer.vocab_size > 1000:
        assert tokens or not text or "<|" in text


def test_no_space_is_put_before_a_text() -> None:
    pieces = [("<unk>", 0.0), ("▁a", -1.0), ("a", -1.5), ("b", -1.0), ("▁", -2.0), ("\x02", -5.0)]
    unigram = tokenizers.Tokenizer(models.Unigram(pieces, unk_id=0))
    unigram.pre_tokenizer = pre_tokenizers.Metaspace()
    unigram.decoder = decoders.Metaspace()
    tokenizer = Tokenizer(unigram)

    assert tokenizer.encode("ab") == [1, 3]
    assert tokenizer.encode_within("ab") == [2, 3]
    assert tokenizer.encode_within(" ab") == [1, 3]


def test_text_that_is_normalized_has_no_tokens() -> None:
    backend = tokenizers.Tokenizer.from_str((Path(BUNDLED) / "tokenizer.json").read_text())
    backend.normalizer = normalizers.Lowercase()
    tokenizer = Tokenizer(backend)

    assert tokenizer.encode_within("Name") == []
    assert tokenizer.encode_within("name") != []


def test_a_compiler_takes_a_tokenizer_that_cannot_encode_forced_text() -> None:
    backend = tokenizers.Tokenizer.from_str((Path(BUNDLED) / "tokenizer.json").read_text())
    backend.normalizer = normalizers.Lowercase()
    tokenizer = Tokenizer(backend)

    compiler = NativeGrammarCompiler(tokenizer, tokenizer.vocab_size, [0])

    assert compiler.compile(Grammar("regex", "Name: [a-z]+")) is not None
