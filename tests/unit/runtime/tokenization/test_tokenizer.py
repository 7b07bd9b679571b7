"""The tokenizer, compared with the decoding of the `tokenizers` package."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import assume, given
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, trainers

from aiomlc.errors import BadRequestError, ModelLoadError
from aiomlc.runtime.tokenization.tokenizer import Tokenizer

CORPUS = ["the quick brown fox jumps over the lazy dog", "Grüße aus Köln", "naïve café", "🎉🎉"]


def byte_level() -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<|end|>"],
        show_progress=False,
    )
    backend.train_from_iterator(CORPUS, trainer)
    backend.add_tokens(["<tool_call>", "ünïcode token"])
    return backend


def sentence_piece() -> tokenizers.Tokenizer:
    """Return a tokenizer like that of Llama 2: ▁ for spaces, and byte fallback."""
    tokens = ["<unk>", "<s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    tokens += ["▁", "▁the", "▁quick", *"abcdefghijklmnopqrstuvwxyzäöüß"]
    backend = tokenizers.Tokenizer(
        models.BPE(
            vocab={token: index for index, token in enumerate(tokens)},
            merges=[],
            unk_token="<unk>",
            byte_fallback=True,
            fuse_unk=True,
        )
    )
    backend.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    backend.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    backend.add_special_tokens(["<s>"])
    return backend


def sentence_piece_with_added_tokens() -> tokenizers.Tokenizer:
    backend = sentence_piece()
    backend.add_tokens(
        [
            AddedToken("normalized", normalized=True),
            AddedToken("raw", normalized=False),
            AddedToken("a", normalized=True),  # Also in the vocabulary.
            AddedToken("two words", normalized=True),
            AddedToken("<x>", normalized=True, special=True),
        ]
    )
    return backend


BYTE_LEVEL = byte_level()
SENTENCE_PIECE = sentence_piece()
ADDED_TOKENS = sentence_piece_with_added_tokens()
# Without the tokens of bytes, which may be invalid UTF-8, and without <x>: the package does not
# recognize a normalized special token when it decodes.
TEXT_TOKEN_IDS = sorted(
    token_id
    for token, token_id in ADDED_TOKENS.get_vocab().items()
    if not token.startswith(("<0x", "<x>"))
)


def text_of(tokenizer: Tokenizer, token_ids: list[int]) -> str:
    table = tokenizer.token_bytes()
    return b"".join(table[token_id] for token_id in token_ids).decode(errors="replace")


@given(st.text())
def test_byte_level_token_bytes_are_the_text(text: str) -> None:
    assume("<|end|>" not in text)  # A special token has no text.
    tokenizer = Tokenizer(BYTE_LEVEL)

    token_ids = tokenizer.encode(text)

    assert text_of(tokenizer, token_ids) == text
    assert tokenizer.decode(token_ids) == text


@given(st.lists(st.integers(0, BYTE_LEVEL.get_vocab_size() - 1)))
def test_byte_level_token_bytes_equal_the_decoded_text(token_ids: list[int]) -> None:
    tokenizer = Tokenizer(BYTE_LEVEL)

    assert text_of(tokenizer, token_ids) == tokenizer.decode(token_ids)


@given(st.text(alphabet=st.characters(codec="utf-8", exclude_characters="▁\0")))
def test_sentence_piece_token_bytes_are_the_text_after_a_space(text: str) -> None:
    assume("<s>" not in text)  # A special token has no text.
    tokenizer = Tokenizer(SENTENCE_PIECE)

    token_ids = tokenizer.encode(text)

    assert text_of(tokenizer, token_ids).removeprefix(" ") == tokenizer.decode(token_ids)
    assert text_of(tokenizer, token_ids) == (f" {text}" if text else "")


@given(st.lists(st.sampled_from(TEXT_TOKEN_IDS)))
def test_sentence_piece_token_bytes_equal_the_decoded_text(token_ids: list[int]) -> None:
    tokenizer = Tokenizer(ADDED_TOKENS)

    assert text_of(tokenizer, token_ids).removeprefix(" ") == tokenizer.decode(token_ids)


def test_a_normalized_added_token_keeps_the_space_of_the_normalizer() -> None:
    tokenizer = Tokenizer(ADDED_TOKENS)
    table = tokenizer.token_bytes(visible=["<x>"])
    normalized, raw, special = (
        tokenizer.token_id(token) or 0 for token in ("normalized", "raw", "<x>")
    )

    assert (table[normalized], table[raw], table[special]) == (b" normalized", b"raw", b" <x>")
    assert tokenizer.describe(normalized) == (" normalized", b" normalized")
    assert tokenizer.describe(special) == ("<x>", None)
    assert tokenizer.grammar_bytes(tokenizer.vocab_size)[special] == b"\xff<x>"


def test_special_tokens_have_no_text_unlike_other_added_tokens() -> None:
    tokenizer = Tokenizer(BYTE_LEVEL)
    table = tokenizer.token_bytes()

    special, added, unicode = (
        tokenizer.token_id(token) for token in ("<|end|>", "<tool_call>", "ünïcode token")
    )

    assert special is not None
    assert added is not None
    assert unicode is not None
    assert table[special] == b""
    assert table[added] == b"<tool_call>"
    assert table[unicode] == "ünïcode token".encode()


def test_a_special_token_can_be_made_visible() -> None:
    tokenizer = Tokenizer(BYTE_LEVEL)
    special = tokenizer.token_id("<|end|>")

    assert special is not None
    assert tokenizer.token_bytes(visible=["<|end|>"])[special] == b"<|end|>"
    assert tokenizer.token_bytes(visible=["<|end|>function"])[special] == b"<|end|>"
    assert tokenizer.token_bytes(visible=["<|end"])[special] == b""


def test_a_token_is_described_by_its_text_or_a_special_one_by_its_name() -> None:
    tokenizer = Tokenizer(BYTE_LEVEL)
    space, added, special = (
        tokenizer.token_id(token) for token in ("Ġ", "ünïcode token", "<|end|>")
    )

    assert tokenizer.describe(space or 0) == (" ", b" ")
    assert tokenizer.describe(added or 0) == ("ünïcode token", "ünïcode token".encode())
    assert tokenizer.describe(special or 0) == ("<|end|>", None)
    assert tokenizer.describe(tokenizer.vocab_size) == ("", None)


def test_special_tokens_in_a_prompt_are_encoded_and_none_is_added() -> None:
    tokenizer = Tokenizer(BYTE_LEVEL)

    assert tokenizer.encode("<|end|>") == [tokenizer.token_id("<|end|>")]
    assert tokenizer.encode("") == []
    assert tokenizer.token_id("no such token") is None


def test_the_token_table_has_the_length_of_the_models_vocabulary() -> None:
    tokenizer = Tokenizer(BYTE_LEVEL)
    size = tokenizer.vocab_size

    assert len(tokenizer.token_bytes()) == size
    assert tokenizer.token_bytes(size + 9)[size:] == [b""] * 9
    with pytest.raises(ModelLoadError, match=f"the tokenizer has {size} tokens"):
        tokenizer.token_bytes(size - 1)


@pytest.mark.parametrize(
    ("decoder", "strips"),
    [
        (decoders.Metaspace(), True),
        (decoders.Metaspace(prepend_scheme="first"), True),
        (decoders.Metaspace(prepend_scheme="never"), False),
        (SENTENCE_PIECE.decoder, True),
        (decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse()]), False),
        (decoders.ByteLevel(), False),
    ],
)
def test_the_leading_space_is_stripped_as_by_decode(
    decoder: decoders.Decoder, strips: bool
) -> None:
    backend = sentence_piece()
    backend.decoder = decoder
    tokenizer = Tokenizer(backend)

    assert tokenizer.strips_leading_space is strips
    if not isinstance(decoder, decoders.ByteLevel):
        the = tokenizer.token_id("▁the")
        assert the is not None
        assert tokenizer.decode([the]) == ("the" if strips else " the")


def test_encode_batch_encodes_each_text() -> None:
    tokenizer = Tokenizer(BYTE_LEVEL)
    texts = ["the quick", "", "Grüße"]

    assert tokenizer.encode_batch(texts) == [tokenizer.encode(text) for text in texts]
    with pytest.raises(BadRequestError, match=r"texts\[1\]"):
        tokenizer.encode_batch(["a", 1])  # type: ignore[list-item]


def test_a_metaspace_decoder_is_supported() -> None:
    backend = tokenizers.Tokenizer(models.Unigram([("▁Hello", 0.0), ("▁world", 0.0)], 0))
    backend.decoder = decoders.Metaspace()

    tokenizer = Tokenizer(backend)

    assert tokenizer.token_bytes() == [b" Hello", b" world"]


@pytest.mark.parametrize(
    "decoder",
    [
        None,
        {"type": "WordPiece", "prefix": "##", "cleanup": True},
        {"type": "Replace", "pattern": {"Regex": "a+"}, "content": " "},
        {"type": "Sequence", "decoders": [{"type": "Fuse"}]},
    ],
)
def test_an_unsupported_decoder_is_rejected(decoder: dict[str, Any] | None) -> None:
    config = json.loads(BYTE_LEVEL.to_str()) | {"decoder": decoder}

    with pytest.raises(ModelLoadError, match="decoder") as caught:
        Tokenizer.from_json(json.dumps(config))

    assert caught.value.field == "decoder"


def test_a_prompt_is_neither_truncated_nor_padded() -> None:
    backend = byte_level()
    backend.enable_truncation(2)
    backend.enable_padding(length=50)

    tokenizer = Tokenizer(backend)

    assert tokenizer.decode(tokenizer.encode("abcdefg")) == "abcdefg"


@pytest.mark.parametrize("name", ["", "tokenizer.json"])
@pytest.mark.parametrize("kind", [str, Path])
def test_a_tokenizer_is_loaded_from_a_directory_or_its_file(
    tmp_path: Path, name: str, kind: type[str | Path]
) -> None:
    (tmp_path / "tokenizer.json").write_text(BYTE_LEVEL.to_str(), encoding="utf-8")

    tokenizer = Tokenizer(tokenizer_path=kind(tmp_path / name))

    assert tokenizer.token_bytes() == Tokenizer(BYTE_LEVEL).token_bytes()
    assert tokenizer.encode_batch(["the fox", ""]) == [tokenizer.encode("the fox"), []]
    assert tokenizer.decode(tokenizer.encode("the fox")) == "the fox"


@pytest.mark.parametrize("path", [None, 3, b"tokenizer.json"])
def test_the_path_of_a_tokenizer_must_be_a_path(path: Any) -> None:  # noqa: ANN401
    with pytest.raises(BadRequestError, match="tokenizer_path must be a path, got"):
        Tokenizer(path)


@pytest.mark.parametrize("content", [None, b"{}", b"not json", b"\xff\xfe"])
def test_an_invalid_tokenizer_file_is_reported_by_path(
    tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "tokenizer.json"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(ModelLoadError) as caught:
        Tokenizer(path)

    assert caught.value.path == path
