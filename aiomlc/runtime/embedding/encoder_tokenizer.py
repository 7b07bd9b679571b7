"""The tokenizer of an encoder, which adds the model's special tokens to each text."""

from __future__ import annotations

__all__ = ("EncoderTokenizer", "TextPair")

import functools
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Self

import tokenizers

from aiomlc.runtime.native.encoder import EncoderInput
from aiomlc.runtime.tokenization.backend import (
    encode_text,
    parse_backend,
    read_tokenizer_file,
    tokenizer_failures,
)
from aiomlc.validation.model_files import load_errors

_PART = 20_000  # Characters that are encoded at a time to count the tokens of a long text.


class TextPair(NamedTuple):
    """Two texts that a model reads as one input, such as a query and a document."""

    first: str
    second: str


class EncoderTokenizer:
    """The tokenizer of an encoder. Thread-safe.

    Args:
        max_tokens: The length of truncated inputs, special tokens included.

    Raises:
        ModelLoadError: If `config` is not a valid tokenizer.
    """

    def __init__(self, config: str, max_tokens: int) -> None:
        self.max_tokens = max_tokens
        self._config = config
        self._backend = self._parse()
        self._backend.no_truncation()

    @classmethod
    def from_file(cls, path: Path, max_tokens: int) -> Self:
        """Read a `tokenizer.json`.

        Raises:
            ModelLoadError: If the file is missing or not a valid tokenizer.
        """
        text = read_tokenizer_file(path)
        with load_errors(path):
            return cls(text, max_tokens)

    @property
    def vocab_size(self) -> int:
        """The highest token id plus 1."""
        return max(self._backend.get_vocab(with_added_tokens=True).values(), default=-1) + 1

    def token_id(self, token: str) -> int | None:
        """Return the id of a token by its content; None if it is not in the vocabulary."""
        token_id: int | None = self._backend.token_to_id(token)
        return token_id

    def encode(self, text: str, *, truncate: bool = False) -> list[int]:
        """Return the token ids of text, with the model's special tokens around it.

        If `truncate` is set, the text is truncated so that there are at most `max_tokens` ids.

        Raises:
            RequestFailedError: If the tokenizer fails on this text.
        """
        backend = self._truncating_backend if truncate else self._backend
        with tokenizer_failures():
            return encode_text(backend, text, add_special_tokens=True)

    def encode_pair(self, pair: TextPair, *, truncate: bool = False) -> EncoderInput:
        """Return the tokens of a pair, with the model's special tokens around and between them.

        If `truncate` is set, the longer text is truncated so that there are at most `max_tokens`.

        Raises:
            RequestFailedError: If the tokenizer fails on these texts.
        """
        backend = self._truncating_backend if truncate else self._backend
        with tokenizer_failures():
            # Long texts are encoded without the GIL.
            encoding = backend.encode_batch_fast([tuple(pair)], add_special_tokens=True)[0]
            return EncoderInput(encoding.ids, encoding.type_ids)

    def count_at_least(self, text: str, is_cancelled: Callable[[], bool]) -> int:
        """Return about half of the number of a long text's tokens, or more than `max_tokens`.

        The text is encoded in parts, and a token at the boundary of two parts may be split.

        Raises:
            RequestFailedError: If the tokenizer fails on this text.
        """
        number = 0
        for start in range(0, len(text), _PART):
            if is_cancelled() or number // 2 > self.max_tokens:
                break

            with tokenizer_failures():
                number += len(encode_text(self._backend, text[start : start + _PART]))

        return number // 2

    @functools.cached_property
    def _truncating_backend(self) -> tokenizers.Tokenizer:
        backend = self._parse()
        backend.enable_truncation(self.max_tokens)
        return backend

    def _parse(self) -> tokenizers.Tokenizer:
        backend = parse_backend(self._config)
        backend.no_padding()
        return backend
