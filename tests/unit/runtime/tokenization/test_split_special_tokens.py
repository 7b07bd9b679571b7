"""Names of special tokens in untrusted text are plain text if a request asks for it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers

from aiomlc.runtime.tokenization.tokenizer import Tokenizer

NAMES = ("<|start|>", "<|end|>", "<s>")
_PIECES = st.lists(
    st.sampled_from([*NAMES, "<|st", "art|>", "a", " b", "é", "\ufdd0", "\n", "<tool>"]),
    max_size=8,
).map("".join)


def _with_tokens(backend: tokenizers.Tokenizer) -> Tokenizer:
    backend.add_special_tokens([AddedToken(name, special=True) for name in NAMES])
    backend.add_tokens([AddedToken("<tool>", normalized=False)])
    return Tokenizer(backend)


def _byte_level() -> Tokenizer:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = tokenizers.Tokenizer(models.BPE({symbol: i for i, symbol in enumerate(alphabet)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return _with_tokens(backend)


def _byte_fallback() -> tokenizers.Tokenizer:
    tokens = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "a", "▁b"]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    return tokenizers.Tokenizer(
        models.BPE(vocabulary, [], unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )


def _sentence_piece() -> Tokenizer:
    backend = _byte_fallback()
    backend.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    spaces = decoders.Replace("▁", " ")
    backend.decoder = decoders.Sequence([spaces, decoders.ByteFallback(), decoders.Fuse()])
    return _with_tokens(backend)


def _metaspace() -> Tokenizer:
    backend = _byte_fallback()
    backend.pre_tokenizer = pre_tokenizers.Metaspace("▁", prepend_scheme="first", split=False)
    spaces = decoders.Replace("▁", " ")
    backend.decoder = decoders.Sequence([spaces, decoders.ByteFallback(), decoders.Fuse()])
    return _with_tokens(backend)


TOKENIZERS = {"byte level": _byte_level, "prefix": _sentence_piece, "first": _metaspace}
_BUILT = {name: build() for name, build in TOKENIZERS.items()}


def _split(name: str) -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer.from_str(TOKENIZERS[name]()._backend.to_str())
    backend.encode_special_tokens = True
    return backend


_SPLIT = {name: _split(name) for name in TOKENIZERS}


@pytest.mark.parametrize("name", TOKENIZERS)
@given(text=_PIECES)
def test_a_split_text_has_the_tokens_of_the_package(name: str, text: str) -> None:
    assert _BUILT[name].encode_split(text) == _SPLIT[name].encode(text).ids


@pytest.mark.parametrize("name", TOKENIZERS)
@given(first=_PIECES, second=_PIECES)
def test_only_the_names_of_the_template_are_special_tokens(
    name: str, first: str, second: str
) -> None:
    tokenizer = _BUILT[name]
    template: Callable[[str, str], str] = "<|start|>user\n{}<|end|>\n<|start|>tool{}<|end|>".format
    mark = tokenizer.mark_special_tokens

    ids = tokenizer.encode_marked(template(mark(first), mark(second)))

    special = [token_id for token_id in ids if tokenizer.describe(token_id)[1] is None]
    assert special == [tokenizer.token_id(f"<|{text}|>") for text in ("start", "end") * 2]
    text = b"".join(tokenizer.describe(token_id)[1] or b"\0" for token_id in ids).decode()
    expected = f"\0user\n{first}\0\n\0tool{second}\0"
    if name == "prefix":  # Its texts have a further space after every added token.
        text, expected = text.replace(" ", ""), expected.replace(" ", "")
    assert text == expected


@pytest.mark.parametrize("name", TOKENIZERS)
@given(text=_PIECES.filter(lambda text: not any(name in text for name in NAMES)))
def test_text_without_names_has_the_same_tokens(name: str, text: str) -> None:
    tokenizer = _BUILT[name]
    prompt = "<|start|>user\n{}<|end|> a".format

    marked = tokenizer.encode_marked(prompt(tokenizer.mark_special_tokens(text)))

    assert marked == tokenizer.encode(prompt(text))
    assert tokenizer.encode_marked(tokenizer.mark_special_tokens(text)) == tokenizer.encode(text)


@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.parametrize(
    "text", ["\ufdd1", "\ufdd1\ufdd1", "\ufdd1\ufdd1\ufdd1<s>", "a\ufdd0\ufdd1<s>"]
)
def test_noncharacters_are_text(name: str, text: str) -> None:
    tokenizer = _BUILT[name]

    ids = tokenizer.encode_marked(f"<|end|>{tokenizer.mark_special_tokens(text)}")

    assert max(ids) < tokenizer.vocab_size
    written = b"".join(tokenizer.describe(token_id)[1] or b"" for token_id in ids).decode()
    assert written.strip() == text
