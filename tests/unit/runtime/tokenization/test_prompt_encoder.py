"""Prompts that cannot fit the context window are refused by their size."""

from __future__ import annotations

import pytest
import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers

from aiomlc.errors import PromptTooLongError
from aiomlc.runtime.tokenization.prompt_encoder import MAX_PROMPT_CHARACTERS, PromptEncoder
from aiomlc.runtime.tokenization.tokenizer import Tokenizer
from tests.unit.runtime.tokenization.test_tokenizer import byte_level, sentence_piece


def byte_tokens(*merges: tuple[str, str]) -> tokenizers.Tokenizer:
    """Return a byte-level tokenizer with these merges of two tokens."""
    tokens = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *("".join(merge) for merge in merges)]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=list(merges)))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    return backend


def test_a_token_has_at_most_the_bytes_of_the_longest_one() -> None:
    assert Tokenizer(byte_tokens()).max_bytes_per_token == 1
    assert Tokenizer(byte_tokens(("a", "b"), ("ab", "c"))).max_bytes_per_token == 3
    assert Tokenizer(byte_level()).max_bytes_per_token == len("ünïcode token".encode())


def test_a_normalizer_that_composes_characters_counts() -> None:
    backend = byte_tokens(("a", "b"))
    backend.normalizer = normalizers.NFC()

    assert Tokenizer(backend).max_bytes_per_token == 6


def test_there_is_no_bound_if_text_can_be_dropped() -> None:
    stripping = byte_tokens()
    stripping.add_special_tokens([AddedToken("<end>", rstrip=True, special=True)])
    collapsing = byte_tokens()
    collapsing.normalizer = normalizers.Replace(tokenizers.Regex(" +"), " ")
    removing = byte_tokens()
    removing.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(" ", "removed"), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )

    for backend in (stripping, collapsing, removing):
        assert Tokenizer(backend).max_bytes_per_token is None


def test_a_long_text_that_cannot_fit_is_refused_before_it_is_encoded() -> None:
    encoder = PromptEncoder(Tokenizer(byte_tokens(("a", "a"))), 1000)

    with pytest.raises(PromptTooLongError) as caught:
        encoder.encode("a" * 100_000)

    assert str(caught.value) == (
        "prompt has at least 50000 tokens, context window is 1000; shorten it, or raise "
        "max_single_sequence_length up to the model's maximum"
    )
    assert (caught.value.prompt_tokens, caught.value.context_window) == (50_000, 1000)


def test_a_long_text_that_could_fit_is_counted_in_parts() -> None:
    backend = byte_tokens()
    backend.add_tokens(["a" * 1000])
    encoder = PromptEncoder(Tokenizer(backend), 5000)

    assert len(encoder.encode("a" * 100_000)) == 100
    with pytest.raises(PromptTooLongError, match="at least 10000 tokens"):
        encoder.encode("b" * 100_000)


def test_counting_ends_when_it_is_cancelled() -> None:
    backend = byte_tokens()
    backend.add_tokens(["a" * 1000])

    assert PromptEncoder(Tokenizer(backend), 5000).encode("b" * 100_000, lambda: True) == []


def test_no_prompt_has_more_than_the_maximum_of_characters() -> None:
    encoder = PromptEncoder(Tokenizer(sentence_piece()), 10**9)

    with pytest.raises(PromptTooLongError, match="at least 2000001 characters"):
        encoder.encode("a" * (MAX_PROMPT_CHARACTERS + 1))


@pytest.mark.parametrize("make", [byte_level, sentence_piece])
def test_long_texts_have_the_tokens_of_the_package(make: object) -> None:
    backend = make()  # type: ignore[operator]
    text = "the quick brown fox 🎉 naïve <tool_call>  \n" * 1000

    encoded = PromptEncoder(Tokenizer(backend), 10**6).encode(text)

    assert encoded == backend.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize("text", ["a" * 20_001, "é" * 20_001, "the quick brown fox 🎉" * 2000])
def test_the_bound_is_never_above_the_number_of_tokens(text: str) -> None:
    tokenizer = Tokenizer(byte_level())
    longest = tokenizer.max_bytes_per_token

    assert longest is not None
    assert len(text.encode()) <= longest * len(tokenizer.encode(text))
