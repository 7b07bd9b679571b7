"""The tokenizer of a model, and the bytes of its tokens for the native core."""

from __future__ import annotations

__all__ = ("Tokenizer",)

import functools
import re
from collections.abc import Collection, Sequence
from os import PathLike
from pathlib import Path
from typing import Self, cast, final

import tokenizers

from aiomlc.errors import ModelLoadError
from aiomlc.gguf.model import read_gguf
from aiomlc.gguf.shards import is_gguf
from aiomlc.gguf.text_files import read_tokenizer_json
from aiomlc.runtime.tokenization.backend import (
    encode_text,
    parse_backend,
    read_tokenizer_file,
    tokenizer_failures,
)
from aiomlc.runtime.tokenization.text_coverage import max_bytes_per_token
from aiomlc.runtime.tokenization.token_decoder import (
    decoded_tokens,
    section_config,
    strips_leading_space,
    token_decoder,
)
from aiomlc.runtime.tokenization.trial import try_tokenizer
from aiomlc.validation.arguments import (
    check_path,
    check_str,
    check_token_ids,
    plain_list,
    wrong_type,
)
from aiomlc.validation.model_files import load_errors

_SEPARATOR = "\x02"  # Text that merges with no other.
# A noncharacter of Unicode: a single one is a mark, and two stand for one in the text.
_MARK = "\ufdd0"
_MARKS = re.compile(f"{_MARK}+")
_CONTINUES = "\ufdd1\ufdd1"  # A token before text that continues other text.
_PROBES = ("a", "0", " ", _SEPARATOR)  # A small vocabulary may have no token for one of them.


@final
class Tokenizer:
    """The tokenizer of a `tokenizer.json` (Hugging Face). Thread-safe.

    Args:
        tokenizer_path: A `tokenizer.json`, a directory that contains it, a GGUF file, or a
            tokenizer of the `tokenizers` package, whose truncation and padding are disabled. A file
            is first tried out in a process with limits, unless it was before.

    Raises:
        ModelNotFoundError: If the file does not exist.
        ModelLoadError: If the file is not a tokenizer, its decoder cannot decode token by token, or
            it was refused because it crashes or needs too much memory or time.
    """

    def __init__(self, tokenizer_path: str | PathLike[str] | tokenizers.Tokenizer) -> None:
        if isinstance(tokenizer_path, tokenizers.Tokenizer):
            self._set_backend(tokenizer_path)
            return

        path, text = _read(tokenizer_path)
        with load_errors(path):
            self._set_backend(parse_backend(text))

    def _set_backend(self, backend: tokenizers.Tokenizer) -> None:
        self._backend = backend
        self._backend.no_truncation()
        self._backend.no_padding()
        decoder = section_config(backend.decoder)
        self._to_bytes = token_decoder(decoder)
        #: Whether `decode` drops a space before the first token, as SentencePiece does. The text of
        #: an answer has none either, while that of `token_bytes` and of completions keeps it.
        self.strips_leading_space: bool = strips_leading_space(decoder)
        added = backend.get_added_tokens_decoder()
        self._special_tokens = {
            token_id: token.content for token_id, token in added.items() if token.special
        }

    def __repr__(self) -> str:
        return f"<Tokenizer of {self.vocab_size:,} tokens>"

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Build a tokenizer from the contents of a `tokenizer.json`.

        Raises:
            ModelLoadError: If the text is not a tokenizer that can decode token by token.
        """
        return cls(parse_backend(text))

    @property
    def vocab_size(self) -> int:
        """The highest token id plus 1. The embedding matrix of a model may have more rows."""
        return max(self._backend.get_vocab(with_added_tokens=True).values(), default=-1) + 1

    @functools.cached_property
    def vocab_bytes(self) -> list[bytes]:
        """The cached result of `token_bytes()`."""
        return self.token_bytes()

    @functools.cached_property
    def max_bytes_per_token(self) -> int | None:
        """The maximum bytes of text per token; None if there is no bound."""
        return max_bytes_per_token(self._backend, self.vocab_bytes)

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        """Return the token ids of a text. Special tokens that it contains are encoded as such.

        Args:
            text: The text.
            add_special_tokens: Whether to add the tokens that the tokenizer puts around a text,
                such as one for its beginning (BOS), also if the text already begins with it.

        Raises:
            BadRequestError: If `text` is not a string or contains a lone surrogate.
            RequestFailedError: If the tokenizer fails on this text.
        """
        try:
            with tokenizer_failures():
                ids = encode_text(self._backend, text)
        except TypeError:
            check_str("prompt", text)
            raise

        return self.add_special_tokens(ids) if add_special_tokens else ids

    def encode_batch(
        self, texts: Sequence[str], *, add_special_tokens: bool = False
    ) -> list[list[int]]:
        """Return the token ids of each text, as `encode` does.

        Raises:
            BadRequestError: If `texts` is not a list of strings.
            RequestFailedError: If the tokenizer fails on one of them.
        """
        texts = plain_list("texts", texts)
        for index, text in enumerate(texts):
            check_str(f"texts[{index}]", text)

        with tokenizer_failures():
            encodings = self._backend.encode_batch_fast(texts, add_special_tokens=False)
        batch = [encoding.ids for encoding in encodings]
        return [self.add_special_tokens(ids) for ids in batch] if add_special_tokens else batch

    def encode_split(self, text: str) -> list[int]:
        """Return the token ids of a text in which the names of special tokens are plain text.

        Raises:
            RequestFailedError: If the tokenizer fails on this text.
        """
        with tokenizer_failures():
            return encode_text(self._splitting, text)

    def encode_marked(self, text: str) -> list[int]:
        """Return the token ids of a text with parts that `mark_special_tokens` returned.

        In these parts, the names of special tokens are plain text.

        Raises:
            RequestFailedError: If the tokenizer fails on this text.
        """
        with tokenizer_failures():
            encoding = self._backend.encode_batch([text], add_special_tokens=False)[0]
            ids: list[int] = []
            between: list[int] = []  # Since the last special token.
            start = 0
            for token_id, (begin, end) in zip(encoding.ids, encoding.offsets, strict=True):
                if text[begin:end].strip() != self._special_tokens.get(token_id):
                    between.append(token_id)
                    continue

                ids += [*self._without_marks(text, start, begin, between), token_id]
                between, start = [], end
            return ids + self._without_marks(text, start, len(text), between)

    def _without_marks(self, text: str, start: int, end: int, token_ids: list[int]) -> list[int]:
        """Return the tokens of a part of the text; `token_ids` are right if it has no marks."""
        part = text[start:end]
        if _MARK not in part:
            return token_ids

        plain = _MARKS.sub(lambda match: match[0][: len(match[0]) // 2], part)
        if start == 0 or _CONTINUES in plain:
            return encode_text(self._splitting, plain)

        # The part continues a text, so no space is put before it.
        return encode_text(self._continuing, _CONTINUES + plain)[1:]

    def mark_special_tokens(self, text: str) -> str:
        """Mark the names of special tokens in a part of a text for `encode_marked`."""
        text = text.replace(_MARK, 2 * _MARK)
        if self._names is None:
            return text

        return self._names.sub(lambda match: match[0][0] + _MARK + match[0][1:], text)

    @functools.cached_property
    def _names(self) -> re.Pattern[str] | None:
        names = sorted(filter(None, self._special_tokens.values()), key=len, reverse=True)
        return re.compile("|".join(map(re.escape, names))) if names else None

    @functools.cached_property
    def _splitting(self) -> tokenizers.Tokenizer:
        backend = tokenizers.Tokenizer.from_str(self._backend.to_str())
        backend.encode_special_tokens = True
        return backend

    @functools.cached_property
    def _continuing(self) -> tokenizers.Tokenizer:
        backend = tokenizers.Tokenizer.from_str(self._splitting.to_str())
        backend.encode_special_tokens = True
        backend.add_tokens([tokenizers.AddedToken(_CONTINUES, normalized=False)])
        return backend

    def add_special_tokens(self, token_ids: Sequence[int]) -> list[int]:
        """Return the tokens with those around them that the tokenizer puts around a text."""
        before, after = self._around
        return [*before, *token_ids, *after]

    @functools.cached_property
    def _around(self) -> tuple[list[int], list[int]]:
        ids: list[int] = []
        for text in _PROBES:
            with tokenizer_failures():
                encoding = self._backend.encode(text, add_special_tokens=True)
            ids, is_added = encoding.ids, encoding.special_tokens_mask
            if 0 in is_added:
                return ids[: is_added.index(0)], ids[len(ids) - is_added[::-1].index(0) :]
        return ids, []

    def encode_within(self, text: str) -> list[int]:
        """Return the tokens of text that continues other text.

        A tokenizer that puts a space before every text sees `text` behind a character of its own.

        Returns:
            Empty if the bytes of the tokens are not the text: it contains the name of a special
            token, or the tokenizer normalizes it.

        Raises:
            RequestFailedError: If the tokenizer fails on this text.
        """
        expected = text.encode()
        ids = self.encode(text)
        if self._text_of(ids) == expected:
            return ids

        before = b""
        ids = self.encode(_SEPARATOR + text)
        for index, token_id in enumerate(ids):
            if before.strip() == _SEPARATOR.encode():
                return ids[index:] if self._text_of(ids[index:]) == expected else []
            before += self.vocab_bytes[token_id]
        return []

    def _text_of(self, ids: Sequence[int]) -> bytes:
        return b"".join(map(self.vocab_bytes.__getitem__, ids))

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text of tokens, without special tokens.

        Ids that are not in the vocabulary have no text: models may have more rows than tokens.

        Raises:
            BadRequestError: If `token_ids` are not valid token ids.
            RequestFailedError: If the tokenizer fails on these tokens.
        """
        ids = plain_list("token_ids", token_ids)
        try:
            with tokenizer_failures():
                return self._backend.decode(ids, skip_special_tokens=True)
        except Exception:
            check_token_ids("token_ids", ids, self.vocab_size)
            raise

    def token_id(self, token: str) -> int | None:
        """Return the id of a token, written as in the vocabulary; None if there is none."""
        return self._backend.token_to_id(token)

    def token_bytes(
        self, vocab_size: int | None = None, *, visible: Collection[str] = ()
    ) -> list[bytes]:
        """Return the text that each token id stands for, as bytes.

        The concatenated bytes of a completion's tokens are its UTF-8 text. A leading space is
        kept, which `decode` of a SentencePiece model drops, since the text continues a prompt.

        Args:
            vocab_size: The length of the result; by default that of the vocabulary.
            visible: Strings whose special tokens count as text. All other special tokens are
                empty.

        Raises:
            ModelLoadError: If `vocab_size` is less than that of the vocabulary.
        """
        size = self.vocab_size
        if vocab_size is not None and vocab_size < size:
            raise ModelLoadError(
                f"the tokenizer has {size} tokens, but the model only {vocab_size}",
                field="vocab_size",
            )

        hidden = {
            token_id
            for token_id, content in self._special_tokens.items()
            if not any(content in text for text in visible)
        }
        table = [b""] * (vocab_size or size)
        for token_id, token in decoded_tokens(self._backend).items():
            if token_id not in hidden:
                table[token_id] = self._to_bytes(token)

        return table

    def special_token_id(self, text: str) -> int | None:
        """Return the id of the special token with this text, or None if there is none."""
        token_id = self.token_id(text)
        return token_id if token_id in self._special_tokens else None

    def grammar_bytes(self, vocab_size: int) -> list[bytes]:
        """Return the table of `token_bytes` as llguidance expects it.

        A special token is the byte 0xFF, which does not occur in UTF-8, and its name.
        """
        table = self.token_bytes(vocab_size)
        for token_id, content in self._special_tokens.items():
            table[token_id] = b"\xff" + content.encode()

        return table

    def describe(self, token_id: int) -> tuple[str, bytes | None]:
        """Return a printable form of a token, and the bytes of its text.

        A special token is written as in the vocabulary and has no bytes (None); an id without a
        token is empty. Incomplete characters are written as U+FFFD.
        """
        token = self._backend.id_to_token(token_id)
        if token is None or token_id in self._special_tokens:
            return self._special_tokens.get(token_id, ""), None

        text = self._to_bytes(token)
        return text.decode(errors="replace"), text


def _read(source: object) -> tuple[Path, str]:
    """Return the file of a tokenizer, and its contents as those of a `tokenizer.json`."""
    if source is None:
        raise wrong_type("tokenizer_path", source, "a path")

    check_path("tokenizer_path", source)
    path = Path(cast("str", source))
    if is_gguf(path):
        with load_errors(path):
            text = read_tokenizer_json(read_gguf(path))
            try_tokenizer(path, text.encode())
            return path, text

    path = path / "tokenizer.json" if path.is_dir() else path
    return path, read_tokenizer_file(path)
